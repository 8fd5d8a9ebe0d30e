"""Libraries compared with our own code, for docs/decisions/0001 to 0003 and 0009.

    python -m bench.libraries [--stemmer FILE] [--only css]

Libraries that are not installed are skipped; snowballstemmer, tokenizers, prometheus_client,
tinycss2 and cssselect2 are no dependencies, so install them in an environment of their own. FILE is
an earlier `mail/text/stemming.py`. CPU times are the minimum of several runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from postroom.mail.html.css.selectors import parse_selectors
from postroom.mail.html.css.syntax import declarations_of, parse_rules
from postroom.pipeline.counters import SharedCounters
from postroom.providers.embeddings import MAX_PIECES, MiniLM, Vocabulary, weights_folder
from postroom.surfaces.rest.metrics import BUCKETS_S, Metrics
from tests.unit.mail.visibility_snippets import SNIPPETS

ROOT = Path(__file__).parents[1]
VOCABULARY = weights_folder() / "vocabulary.txt"
ROUTES = [f"/v1/route{number}" for number in range(80)]


def least_s(run: Callable[[], object], times: int = 5) -> float:
    """The minimum CPU time of several runs."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


def import_cost(module: str, before: str = "re, functools, pathlib") -> tuple[float, float]:
    """CPU in ms and memory in MB of an import, beyond those of modules that we import anyway."""

    def once(code: str) -> tuple[float, float]:
        # Not ru_maxrss: a child inherits that of the process that started it.
        report = (
            "import time; print(time.process_time(), open('/proc/self/statm').read().split()[1])"
        )
        command = [sys.executable, "-c", f"{code}\n{report}"]
        cpu, pages = subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.split()
        return float(cpu) * 1e3, int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20

    bare = [once(f"import {before}") for _ in range(8)]
    full = [once(f"import {before}\nimport {module}") for _ in range(8)]
    cpu, memory = (min(x[i] for x in full) - min(x[i] for x in bare) for i in (0, 1))
    return cpu, memory


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def texts() -> list[str]:
    sources = (
        (ROOT / "tests", "*.eml"),
        (ROOT / "docs", "*.md"),
        (Path(os.__file__).parent, "*.py"),
    )
    found = (
        path.read_text("utf-8", "replace") for root, kind in sources for path in root.rglob(kind)
    )
    return [text[at : at + 700] for text in found for at in range(0, min(len(text), 20_000), 700)]


def stemming(old: Path | None) -> None:
    import Stemmer

    words = [w for w in VOCABULARY.read_text("utf-8").split() if w.isascii() and w.isalpha()]
    seen = {w for text in texts() for w in re.findall("[a-z]+", text.lower()) if len(w) <= 64}
    stemmers: dict[str, Callable[[str], str]] = {
        "PyStemmer": Stemmer.Stemmer("english", 0).stemWord
    }
    if has("snowballstemmer"):
        from snowballstemmer.english_stemmer import EnglishStemmer

        stemmers["snowballstemmer"] = EnglishStemmer().stemWord
    if old is not None:
        spec = importlib.util.spec_from_file_location("old_stemming", old)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        stemmers["ours"] = module.stem.__wrapped__
    for name, stem in stemmers.items():
        taken = least_s(lambda stem=stem: [stem(word) for word in words]) / len(words) * 1e6
        print(f"stemming  {name:16} {taken:8.2f} ms for 1,000 of {len(words)} words")
        reference = stemmers["PyStemmer"]
        for kind, some in (("vocabulary", words), ("texts", sorted(seen))):
            other = [word for word in some if stem(word) != reference(word)]
            print(f"          {len(other)} of {len(some)} words of {kind} differ: {other[:10]}")


def wordpiece() -> None:
    some, ours = texts()[::100], Vocabulary(VOCABULARY)
    sample = some
    model = MiniLM()
    print(f"model     {least_s(lambda: model.embed(sample[:20]), 3) / 20 * 1e3:8.2f} ms for a text")
    uses: dict[str, Callable[[str], list[int]]] = {"ours": lambda s: ours.numbers(s, MAX_PIECES)}
    if has("tokenizers"):
        from tokenizers import BertWordPieceTokenizer

        library = BertWordPieceTokenizer(str(VOCABULARY), lowercase=True)
        library.enable_truncation(MAX_PIECES)
        uses["tokenizers"] = lambda s: library.encode(s).ids
    for name, use in uses.items():
        taken = least_s(lambda use=use: [use(s) for s in sample], 3) / len(sample) * 1e3
        other = sum(use(s) != uses["ours"](s) for s in some)
        print(f"wordpiece {name:16} {taken:8.3f} ms for a text; {other} of {len(some)} differ")


def metrics() -> None:
    ours = Metrics(SharedCounters(4))
    report("ours", lambda route: ours.record("GET", route, 200, 0.03), ours.text)
    if not has("prometheus_client"):
        return
    import prometheus_client as library
    from prometheus_client import multiprocess

    is_shared = "PROMETHEUS_MULTIPROC_DIR" in os.environ
    registry = library.CollectorRegistry()
    labels = ["method", "route", "status"]
    count = library.Counter("http_requests", "-", labels, registry=registry)
    timed = library.Histogram("http_seconds", "-", ["route"], buckets=BUCKETS_S, registry=registry)

    def record(route: str) -> None:
        count.labels("GET", route, "200").inc()
        timed.labels(route).observe(0.03)

    def page() -> bytes:
        if not is_shared:
            return library.generate_latest(registry)
        fresh = library.CollectorRegistry()
        multiprocess.MultiProcessCollector(fresh)
        return library.generate_latest(fresh)

    report("multiprocess" if is_shared else "single process", record, page)


def report(name: str, record: Callable[[str], Any], page: Callable[[], Any]) -> None:
    def some(routes: Iterable[str] = ROUTES) -> None:
        for _ in range(100):
            for route in routes:
                record(route)

    per_request = least_s(some) / (100 * len(ROUTES)) * 1e6
    print(f"metrics   {name:16} {per_request:8.2f} us for a request")
    print(f"          {least_s(page) * 1e3:.2f} ms for the page")


def css() -> None:
    """Style sheets, style attributes and selectors of the snippets of the tests."""
    html = "".join(SNIPPETS.values())
    sheets = re.findall(r"<style[^>]*>(.*?)</style>", html, re.DOTALL)
    styles = re.findall(r'style="([^"]+)"', html)
    rules = [rule.prelude for sheet in sheets for rule in parse_rules(sheet).rules]
    selectors = [prelude for prelude in rules if not prelude.startswith("@")]
    parsers: dict[str, tuple[Callable[[str], object], list[str]]] = {
        "sheets, ours": (parse_rules, sheets),
        "styles, ours": (declarations_of.__wrapped__, styles),
        "selectors, ours": (parse_selectors, selectors),
    }
    if has("tinycss2"):
        import tinycss2

        def contents(css: Any) -> list[Any]:
            return list(tinycss2.parse_blocks_contents(css, skip_comments=True))

        def stylesheet(css: str) -> list[Any]:
            parsed = tinycss2.parse_stylesheet(css, skip_comments=True, skip_whitespace=True)
            return [contents(rule.content) for rule in parsed if rule.type == "qualified-rule"]

        parsers |= {
            "sheets, tinycss2": (stylesheet, sheets),
            "styles, tinycss2": (contents, styles),
        }
    if has("cssselect2"):
        import cssselect2

        def compiled(selector: str) -> object:
            try:
                return cssselect2.compile_selector_list(selector)
            except cssselect2.SelectorError:
                return None

        parsers["selectors, cssselect2"] = compiled, selectors
        known = [bool(compiled(one)) for one in selectors if parse_selectors(one)]
        print(f"css       cssselect2 rejects {known.count(False)} of {len(known)} selectors")
    for name, (parse, sources) in parsers.items():
        taken = least_s(lambda parse=parse, sources=sources: [parse(one) for one in sources])
        print(f"css       {name:22} {taken / len(sources) * 1e6:8.1f} us for each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stemmer", type=Path)
    parser.add_argument("--only", choices=("css", "metrics", "wordpiece"))
    args = parser.parse_args()
    if args.only is None:
        for module in (
            "Stemmer",
            "snowballstemmer.english_stemmer",
            "tokenizers",
            "prometheus_client",
            "tinycss2",
            "cssselect2",
        ):
            if has(module.partition(".")[0]):
                cpu_ms, memory_mb = import_cost(module)
                print(f"import    {module:32} {cpu_ms:6.1f} ms CPU, {memory_mb:5.1f} MB")
        stemming(args.stemmer)
        wordpiece()
        css()
    if args.only in ("wordpiece", "css"):
        (wordpiece if args.only == "wordpiece" else css)()
        return
    metrics()
    if args.only is None and has("prometheus_client"):
        with tempfile.TemporaryDirectory() as folder:
            again = [sys.executable, "-m", "bench.libraries", "--only", "metrics"]
            subprocess.run(
                again, env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": folder}, check=True
            )


if __name__ == "__main__":
    main()
