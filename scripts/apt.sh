# Packages of Debian's and their sources, with lists that the system does not see. Sourced, never run.
#
# apt fetches them from the mirror that MIRROR names, or the one that it has here, and checks their signatures.

KEYS=${KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}

mirror() {
    apt-get indextargets --format '$(SITE) $(ORIGIN)' | awk '$2 == "Debian" && $1 !~ /security/ { print $1; exit }'
}

# own FOLDER PROGRAM ARGUMENT...: a program of apt's, with the lists in that folder alone.
own() {
    lists=$1 program=$2
    shift 2
    "$program" -qq -o "Dir::State::Lists=$lists/lists" -o "Dir::State::Status=$lists/status" -o "Dir::Cache=$lists/cache" \
        -o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=- -o APT::Sandbox::User=root -o Acquire::Retries=3 "$@"
}

# own_lists FOLDER deb|deb-src SUITE...: makes the lists, and FOLDER/made once they are whole. Fails where they cannot be had.
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
