"""Mail itself: pure functions on bytes and strings, no I/O.

    reading    parse → headers · mime · bodies → charsets · words · addresses · dates · parameters
    text       html → rendering → layout · styles · stylesheets · colours · unseen · invisible
    replies    replies → attributions · signatures · quote_words
    threads    threads → subjects · identifiers
    machines   reports → bounces · deliveries · bounce_reasons · cloud_notices;  machines
    trust      authentication → dkim_checking → dkim_keys · canonical
               lookalikes · protection · comparison
    files      filenames · filetypes · tnef · transfer · calendars
    writing    compose → encoding · typed · verification
    comparing  fold · fingerprint

`message` holds what reading yields. What is heavy (HTML, charset detection, the words of mail
servers) is imported by the first mail that needs it.
"""
