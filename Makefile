.DEFAULT_GOAL := help
.PHONY: bench-source bundle bench-size bench-approval bench-agent bench-cells bench-client client bench-fairness help run setup test check unit format pins build bench-imap bench-import bench-load bench-memory bench-search bench-start bench-sync corpora fuzz bench-post faults faults-backup faults-cells faults-database clean bench-rules bench-walks bench-web rule-runs screenshots docs reference bench-inboxes bench-sizes
SHELL := /bin/bash

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

run: ## Start Postroom with a demo inbox, in .run/, on 127.0.0.1:8700
	@scripts/setup run
	@scripts/docs --try
	@exec .venv/bin/postroom serve --demo --data .run

setup: ## Make .venv ready for work (run and test do it automatically)
	@scripts/setup test

test: setup ## Run every check and every test
	@scripts/system-packages test
	@scripts/test all

check: setup ## Run only the linters, the type checker and the import contract
	@scripts/test check

unit: setup ## Run only the quick tests, on every Python that is found
	@scripts/test unit

format: setup ## Format the code and mend what ruff can mend
	@.venv/bin/ruff check --fix-only --quiet .
	@.venv/bin/ruff format --quiet .

pins: setup ## Regenerate constraints/ after a change of dependencies (UPGRADE=1: newest versions)
	@scripts/pins $(if $(UPGRADE),--upgrade)

client: setup ## Regenerate the operations of the Python client from the routes table
	@.venv/bin/python scripts/make_client.py

build: setup ## Build the wheels into dist/, byte for byte the same each time
	@scripts/build dist model

bundle: setup ## Build the MCP bundle (.mcpb) into dist/, checked with its official tool
	@scripts/bundle dist

bench-agent: setup ## Measure what forty daily tasks cost an agent, by toolset
	@PYTHONPATH=. .venv/bin/python -m bench.agent

bench-imap: setup ## Measure a page of live IMAP with 50 ms of latency beside a simple client
	@scripts/system-packages test
	@.venv/bin/python -m bench.imap

bench-import: ## Measure the import of a mailbox: make bench-import MBOX=some.mbox
	@scripts/setup run
	@.venv/bin/python -m bench.import_mbox "$(MBOX)"

bench-memory: ## Measure how well and how fast memories are found: make bench-memory N=100000
	@scripts/setup run
	@.venv/bin/python -m bench.memory --memories $(or $(N),100000)

bench-load: setup ## Measure 1,000 clients: make bench-load [DATABASE=postgres] [PROCESSES=2]
	@scripts/system-packages test
	@.venv/bin/python -m bench.load --database $(or $(DATABASE),sqlite) \
		--processes $(or $(PROCESSES),1)

bench-search: ## Measure search: make bench-search N=100000 [DATA=folder to keep | DATABASE=url|new]
	@scripts/setup run
	@.venv/bin/python -m $(if $(DATABASE),bench.search.postgres,bench.search) \
		$(if $(filter-out new,$(DATABASE)),"$(DATABASE)") \
		--messages $(or $(N),100000) $(if $(DATA),--data "$(DATA)")

bench-sizes: setup ## Measure what a stored message takes: make bench-sizes PLACE=folder|url
	@.venv/bin/python -m bench.sizes "$(PLACE)"

bench-inboxes: setup ## Measure what one inbox costs among few and many: make bench-inboxes [N=20000] [OWNED=5000]
	@.venv/bin/python -m bench.inboxes --many $(or $(N),20000) $(if $(OWNED),--owned $(OWNED))

bench-size: setup ## Measure what `pip install postroom` takes on disk: make bench-size [EXTRAS=pdf]
	@scripts/small-environment .cache/bench-size $(EXTRAS)

bench-start: ## Measure the cold start of postroom mcp beside a bare server
	@scripts/setup run
	@.venv/bin/python -m bench.start

corpora: ## Score the reading of real mail: make corpora CORPORA=folder
	@scripts/setup run
	@.venv/bin/python -m bench.corpora "$(CORPORA)"

fuzz: setup ## Throw bytes at the readers of mail and at REST for longer, and run the long cases
	@scripts/system-packages test
	@.venv/bin/python -m pytest -q -m long -n auto --ignore tests/faults --ignore tests/cells \
		--ignore tests/surfaces/rest/test_schemathesis.py
	@.venv/bin/python -m pytest -q tests/fuzz --hypothesis-profile=fuzz
	@SCHEMATHESIS_EXAMPLES=50 .venv/bin/python -m pytest -q -m "" tests/surfaces/rest/test_schemathesis.py
	@VISIBILITY=all .venv/bin/python -m pytest -q tests/surfaces/web/test_visibility.py
	@LOOKS=all .venv/bin/python -m pytest -q tests/surfaces/web -k "accessible or wider or every_screen"

bench-approval: ## Measure what the gate of outgoing mail costs per send
	@scripts/setup run
	@.venv/bin/python -m bench.approval

bench-cells: setup ## Measure a cell behind nginx beside one without: make bench-cells [RUN=idle|arrivals]
	@scripts/system-packages test
	@PYTHONPATH=. .venv/bin/python -m bench.cells $(if $(RUN),--$(RUN),--messages $(or $(N),4000))

bench-client: ## Measure what importing the Python client costs beside Python itself
	@scripts/setup run
	@.venv/bin/python -m bench.client

bench-fairness: setup ## Measure whether a key that asks without end makes the others wait
	@.venv/bin/python -m bench.fairness

bench-post: setup ## Measure mail in over SMTP against import, and how soon a wait ends
	@PYTHONPATH=. .venv/bin/python -m bench.post

bench-rules: ## Measure planning a rule beside looking at every message: make bench-rules N=100000
	@scripts/setup run
	@.venv/bin/python -m bench.rules --messages $(or $(N),100000) $(if $(DATA),--data "$(DATA)")

bench-web: ## Measure what a web page costs above its operation: make bench-web N=100000 [DATA=folder]
	@scripts/setup run
	@.venv/bin/python -m bench.web --messages $(or $(N),100000) $(if $(DATA),--data "$(DATA)")

bench-walks: setup ## Count the files of each walk of docs/explanation/architecture.md, with their functions
	@PYTHONPATH=. .venv/bin/python -m bench.walks --list

bench-source: setup ## Count the modules and lines of the source, by folder and by feature
	@PYTHONPATH=. .venv/bin/python -m bench.source_size

bench-sync: setup ## Measure a first pass over IMAP beside an import, with kills: make bench-sync N=20000
	@scripts/system-packages test
	@PYTHONPATH=. .venv/bin/python -m bench.sync --count $(or $(N),20000)

rule-runs: setup ## Plan, apply and undo 5,000 random rules: what is planned is what happens
	@RULE_RUNS=5000 .venv/bin/python -m pytest -q -p no:xdist tests/operations/test_rule_runs.py

faults: setup ## Kill, cut, fill and fail a real server: make faults SCALE=0.1 (1 is the full run)
	@scripts/system-packages test
	@.venv/bin/python -m tests.faults.drills $(or $(SCALE),0.1) $(DRILLS)
	@.venv/bin/python -m pytest -q -m long tests/faults tests/cells

faults-backup: setup ## Back up a busy installation repeatedly: make faults-backup BACKUPS=100
	@.venv/bin/python -m tests.faults.backups $(or $(BACKUPS),10)

faults-database: setup ## Kill PostgreSQL under load: make faults-database MINUTES=10 SCALE=0.1
	@scripts/system-packages test
	@.venv/bin/python -m tests.faults.database $(or $(MINUTES),1) $(or $(SCALE),0)

faults-cells: setup ## Kill, stop, add and move cells under load: make faults-cells SCALE=0.1
	@scripts/system-packages test
	@.venv/bin/python -m tests.faults.cells $(or $(SCALE),0.1)

docs: ## Build the documentation site, which the server shows at /guide
	@scripts/setup run
	@scripts/docs
	@echo "docs: built src/postroom/surfaces/web/site/index.html; make run serves it at /guide"

reference: setup ## Write docs/reference/api/ anew, from the tables of routes and tools
	@.venv/bin/python scripts/make_reference.py

screenshots: setup ## Take the pictures of README and docs anew, from a running server
	@scripts/system-packages test pictures
	@PYTHONPATH=. .venv/bin/python scripts/screenshots.py docs/images

clean: ## Remove what was built and cached, but neither .venv nor .run
	@rm -rf build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
