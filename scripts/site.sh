#!/bin/sh
# Build the site into build/site, from docs/ and the commands' declarations. make site calls this.
#
# The tools have their own environment, build/site-venv, which is made anew when docs/site/requirements.txt has changed. Everything
# else works without the network. Warnings and dead links are errors.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
VENV=${VENV:-.venv}
TOOLS=build/site-venv
LIST=docs/site/requirements.txt

# new_enough PYTHON: Sphinx needs 3.11.
new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_tools_python() {
    for python in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if new_enough "$python"; then
            echo "$python"
            return
        fi
    done
    return 1
}

wanted() {
    cat "$LIST"
    "$TOOLS/bin/python" --version
}

if [ "$(wanted 2>/dev/null | cksum)" != "$(cat "$TOOLS/cksum" 2>/dev/null || true)" ]; then
    python=$(find_tools_python) || { say "Sphinx needs Python 3.11 or later; there is none here"; exit 1; }
    say "fetching what $LIST names into $TOOLS"
    "$python" -m venv --clear "$TOOLS"
    "$TOOLS/bin/python" -m pip --disable-pip-version-check -q install -r "$LIST"
    wanted | cksum > "$TOOLS/cksum"
fi
rm -rf build/site-src build/site
"$VENV/bin/python" scripts/site_pages.py build/site-src
"$VENV/bin/python" scripts/example_report.py build/site-src/_extra/example-report.html
"$VENV/bin/python" scripts/skill.py --llms > build/site-src/_extra/llms.txt
# Sphinx stores its state next to the site, not in it.
"$TOOLS/bin/python" -m sphinx -q -W --keep-going -n -b html -d build/site-doctrees build/site-src build/site
rm -f build/site/.buildinfo build/site/objects.inv
"$VENV/bin/python" scripts/site_check.py build/site
say "the site is in build/site: open build/site/index.html"
