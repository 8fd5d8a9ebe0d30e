"""Separating the new text of a reply from what it quotes, and from the signature.

    splitting      lines, each new, quoted or signature: `split_reply`, `line_kinds`
    attributions   "On Monday Ada wrote:" in many languages, in any order, wrapped anywhere
    headings       separators, header blocks, forwards and notices above a quoted mail
    signatures     closings, names, device lines and list footers at the end
    html_quotes    the elements in which mail programs put what they quote

Every pattern is applied to a bounded piece of text and has no nested repetition, so that no input
can make it slow.
"""

from postroom.mail.quoting.splitting import Reply, line_kinds, split_reply

__all__ = ["Reply", "line_kinds", "split_reply"]
