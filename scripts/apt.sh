# Fetch Debian's packages and sources, with package lists that the system does not use. Source this file; do not run it.
# apt fetches from the mirror that MIRROR names, else from the system's mirror, and checks signatures.

KEYS=${KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}

mirror() {
    apt-get indextargets --format '$(SITE) $(ORIGIN)' | awk '$2 == "Debian" && $1 !~ /security/ { print $1; exit }'
}

# own FOLDER PROGRAM ARGUMENT...: run a program of apt with only the lists in that folder.
own() {
    lists=$1 program=$2
    shift 2
    "$program" -qq -o "Dir::State::Lists=$lists/lists" -o "Dir::State::Status=$lists/status" -o "Dir::Cache=$lists/cache" \
        -o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=- -o APT::Sandbox::User=root -o Acquire::Retries=3 "$@"
}

# own_lists FOLDER deb|deb-src SUITE...: fetch the lists, then create FOLDER/made. Fails if a list is not available.
own_lists() {
    lists=$1 kind=$2
    shift 2
    from=${MIRROR:-$(mirror)}
    [ -n "$from" ] || { say "apt has no mirror of Debian here; name one with MIRROR"; exit 1; }
    rm -rf "$lists"
    mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
    : > "$lists/status"
    for suite; do echo "$kind [signed-by=$KEYS] $from $suite main"; done > "$lists/sources.list"
    own "$lists" apt-get update --error-on=any && touch "$lists/made"
}
