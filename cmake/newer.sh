#!/bin/sh
# newer.sh: compares dependencies.txt with the suites that it names, as the mirror of this machine's apt has them now. Exits 1 if a suite has
# another version of the source package than the one whose patches were looked at, or no such package any more.
set -eu

cmake=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
chmod 0755 "$scratch" # apt fetches as a user of its own
trap 'rm -rf "$scratch"' EXIT
status=0

# index SUITE: the path of the suite's list of source packages, fetched once; its security updates are in a suite of their own.
index() {
    list=$scratch/$1
    [ -f "$list" ] || {
        : >"$list"
        for mirror in $("$cmake/sources.sh" --mirrors); do
            for suite in "$1" "$1-security"; do
                part=$scratch/part.xz
                rm -f "$part"
                /usr/lib/apt/apt-helper -qq download-file "$mirror/dists/$suite/main/source/Sources.xz" "$part" >/dev/null 2>&1 || continue
                xz -dc "$part" >>"$list"
                printf '\n' >>"$list"
            done
        done
    }
    printf '%s\n' "$list"
}

# present SUITE PACKAGE: the highest version of a source package.
present() {
    highest=""
    for version in $(awk -v RS= -v name="$2" '$0 ~ "(^|\n)Package: " name "(\n|$)" && match($0, /\nVersion: [^\n]*/) { print substr($0, RSTART + 10, RLENGTH - 10) }' "$(index "$1")"); do
        if [ -z "$highest" ] || dpkg --compare-versions "$version" gt "$highest"; then highest=$version; fi
    done
    printf '%s\n' "$highest"
}

while read -r library version suite package seen _; do
    case $library in "" | "#"*) continue ;; esac
    now=$(present "$suite" "$package")
    if [ -z "$now" ]; then
        echo "$library $version: $suite has no source package $package that could be read: is the suite archived, or the mirror away?"
        status=1
    elif [ "$now" != "$seen" ]; then
        echo "$library $version: $suite has $package $now; look at what it fixes since $seen, then change cmake/dependencies.txt"
        status=1
    else
        echo "$library $version: $suite has $package $now, as looked at"
    fi
done <"$cmake/dependencies.txt"
exit "$status"
