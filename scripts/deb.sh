#!/bin/sh
# Make a Debian package from the wheel in dist/, into dist/, for Debian 11 and later and Ubuntu 22.04 and later, on
# amd64. Needs debhelper. If lintian is installed, it must find no errors.
set -eu
cd "$(dirname "$0")/.."
. scripts/common.sh
TOOLS=$PWD/build/packaging/tools
PLACE=build/packaging/deb/gdbheap

for tool in dh dpkg-buildpackage; do
    command -v "$tool" >/dev/null || { say "no $tool here: apt-get install debhelper dpkg-dev"; exit 2; }
done
WHEEL=$(echo "$PWD"/dist/*manylinux*x86_64.whl)
export WHEEL
[ -f "$WHEEL" ] || { say "no wheel in dist; make wheel"; exit 2; }
PIP="$TOOLS/bin/python -m pip --disable-pip-version-check"
export PIP
set_source_date
say "a Debian package of $(basename "$WHEEL")"
rm -rf build/packaging/deb dist/gdbheap_*.deb
mkdir -p "$PLACE"
cp -r packaging/debian "$PLACE/debian"
cp packaging/licences.txt packaging/requirements.txt "$PLACE/"
# The package's changelog has one entry, for the release of this commit. CHANGELOG.md has all releases.
cat > "$PLACE/debian/changelog" <<END
gdbheap ($(version)) unstable; urgency=medium

  * CHANGELOG.md in the sources lists the changes.

 -- gdbheap contributors <contributors@gdbheap.invalid>  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END
# The needed parts of Build-Depends are checked above; the rest is for builds on other machines.
(cd "$PLACE" && dpkg-buildpackage --build=binary --no-sign -d >../log 2>&1) || { cat build/packaging/deb/log >&2; exit 1; }
mv build/packaging/deb/*.deb dist/
if command -v lintian >/dev/null; then
    lintian --fail-on error --tag-display-limit 0 dist/gdbheap_*.deb >&2
else
    say "skipped: lintian (not here)"
fi
say "in dist: $(cd dist && echo gdbheap_*.deb)"
