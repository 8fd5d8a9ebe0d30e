"""Whether a browser shows a text: rendered twice with different letters, the pixels differ."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from playwright.async_api import Browser, Page

WIDTH, HEIGHT = 800, 120
PER_PAGE = 80
# Invisible letters differ by at most this much, in one channel or in all.
FAINT, FEW_PIXELS = 30, 450
_FRAME = '<iframe sandbox="allow-same-origin"></iframe>'
_PAGE = f"""<!doctype html>
<style>
  * {{ margin: 0; padding: 0; border: 0 }}
  iframe {{ display: block; width: {WIDTH}px; height: {HEIGHT}px }}
</style>
{_FRAME * PER_PAGE}"""
# Written into existing frames: a navigation of each, as with `srcdoc`, takes twice the time. A
# document in `srcdoc` is never in quirks mode, nor is one with this doctype.
_WRITE = """
async (snippets) => {
  const written = [...document.querySelectorAll("iframe")].map((frame, number) => {
    const inner = frame.contentDocument;
    inner.open();
    inner.write("<!doctype html>" + (snippets[number] ?? ""));
    const loaded = new Promise((done) => { frame.onload = done; });
    inner.close();
    return loaded;
  });
  await Promise.all(written);
}
"""
_COMPARE = """
async ([one, other, height, count, faint]) => {
  const pixels = async (data) => {
    const image = new Image();
    image.src = "data:image/png;base64," + data;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height);
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  };
  const [a, b] = [await pixels(one), await pixels(other)];
  const found = new Array(count).fill(0), row = a.width * 4;
  for (let at = 0; at < a.data.length; at += 4) {
    const far = Math.max(Math.abs(a.data[at] - b.data[at]),
      Math.abs(a.data[at + 1] - b.data[at + 1]), Math.abs(a.data[at + 2] - b.data[at + 2]));
    if (far > faint) found[Math.floor(at / row / height)] += 1;
  }
  return found;
}
"""


async def shown_pixels(
    browser: Browser, snippets: Mapping[str, str], texts: tuple[str, str]
) -> dict[str, int]:
    """The number of pixels that depend on the text in place of `{}`, for each snippet."""
    context = await browser.new_context(viewport={"width": WIDTH, "height": HEIGHT * PER_PAGE})
    page = await context.new_page()
    await page.set_content(_PAGE)
    found: dict[str, int] = {}
    names = list(snippets)
    for start in range(0, len(names), PER_PAGE):
        batch = names[start : start + PER_PAGE]
        shots = [await _shot(page, [snippets[name] for name in batch], text) for text in texts]
        counts = await page.evaluate(_COMPARE, [*shots, HEIGHT, len(batch), FAINT])
        found |= dict(zip(batch, counts, strict=True))
    await context.close()
    return found


async def _shot(page: Page, snippets: list[str], text: str) -> str:
    await page.evaluate(_WRITE, [html.replace("{}", text) for html in snippets])
    return base64.b64encode(await page.screenshot()).decode()
