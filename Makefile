# Two commands set up everything on a bare machine with Python >= 3.11 and pip:
#   make demo    the main job: views of sample photographs (or IMAGES="a.jpg b.jpg"), the accuracy they bring, one page
#   make test    lint, types, room order and the whole test suite
#   make docs    the documentation as pages, in site/
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# generators that are packages of their own, as soon as their weights are there
CARDS    := $(wildcard packages/*/src/*/weights/card.json)
PACKAGES := $(foreach card,$(CARDS),$(firstword $(subst /src/, ,$(card))))

.PHONY: test lint demo docs browser clean

$(STAMP): pyproject.toml constraints.txt $(CARDS) $(PACKAGES:%=%/pyproject.toml)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' $(PACKAGES:%=-e %)
	touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint browser
	HF_HUB_OFFLINE=1 $(BIN)/pytest -n 2 --dist worksteal

# a headless Chromium for tests/report/test_browser.py and tests/ui/test_page.py: where none is installed, Debian's,
# or else the one of an npm package (node >= 20.11); where neither can be had, these tests are skipped
browser:
	@$(PYTHON) -c 'import sys; from tests.report.chromium import find; sys.exit(find() is None)' \
	|| { test "$$(id -u)" = 0 && timeout 200 sh -c 'apt-get update -qq && apt-get install -y -qq chromium'; } \
	|| timeout 120 npm install --no-audit --no-fund --prefix .cache/browser @sparticuz/chromium \
	|| echo "no Chromium: the tests of pages are skipped"

demo: $(STAMP)
	$(BIN)/onesdaug study run demo -o demo-output $(foreach image,$(IMAGES),--images $(image))

# the variable silences an announcement of the theme's makers
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

clean:
	rm -rf $(VENV) demo-output site
