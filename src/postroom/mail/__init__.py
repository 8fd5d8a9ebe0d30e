"""Parsing, composing and reading mail: pure functions on bytes and text, no I/O.

    parse, message     from raw bytes to a `ParsedMessage`
    mime               headers, parts, transfer encodings, charsets, attachments
    html               sanitised HTML, the text that a reader sees, and what is hidden
    quoting            new text, quoted text and signature of a reply
    reports            bounces, delivery reports, automatic mail
    authentication     Authentication-Results, look-alike senders; DKIM is in `dkim`
    compose            from a request to the bytes of RFC 5322; `verification` reads them back
    extraction         one-time codes and action links
    text               folding, invisible characters, terms, excerpts
    threads            which thread a mail belongs to
    data               word lists in many languages, and tables of characters

Heavy imports (HTML, charset detection, word lists) are made by the first mail that needs them.
"""
