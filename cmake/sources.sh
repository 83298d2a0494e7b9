#!/bin/sh
# sources.sh --mirrors: prints the servers of this machine's apt, each once.
# sources.sh LIBRARY: prints the folder of the unpacked and patched sources of a library of dependencies.txt, in build/dependencies.
# They are fetched and unpacked when they are not there, once for all presets. The archive comes from the mirror that this machine's apt
# uses, or from the folder MOONPOOL_SOURCES. Its SHA-256 has to be the one in dependencies.txt.
set -eu

cmake=$(cd "$(dirname "$0")" && pwd)
store=$(dirname "$cmake")/build/dependencies

say() { printf 'dependencies: %s\n' "$*" >&2; }

# The servers of this machine's apt, each once.
mirrors() { apt-get update --print-uris 2>/dev/null | sed -n "s#^'\([a-z+]*:.*\)/dists/.*#\1#p" | sort -u; }

if [ "$1" = --mirrors ]; then
    mirrors
    exit
fi
library=$1

row=$(grep "^$library " "$cmake/dependencies.txt") || {
    say "no library '$library' in cmake/dependencies.txt"
    exit 1
}
# shellcheck disable=SC2086 # split into fields on purpose
set -- $row
version=$2 pool=$6 archive=$7 hash=$8

is_whole() { [ -f "$1" ] && printf '%s  %s\n' "$hash" "$1" | sha256sum --status -c -; }

# fetch TARGET: the archive from a mirror. Debian has it in main, Ubuntu in main or universe.
fetch() {
    helper=/usr/lib/apt/apt-helper
    [ -x "$helper" ] || return 1
    for mirror in $(mirrors); do
        for component in main universe; do
            say "fetching $archive"
            "$helper" -qq -o Acquire::Retries=2 download-file "$mirror/pool/$component/$pool/$archive" "$1" "SHA256:$hash" >/dev/null 2>&1 && return 0
        done
    done
    return 1
}

# obtain: leaves the archive in build/dependencies.
obtain() {
    is_whole "$store/$archive" && return 0
    mkdir -p "$store"
    copy=$store/$archive.$$
    if [ -n "${MOONPOOL_SOURCES:-}" ]; then
        if ! is_whole "$MOONPOOL_SOURCES/$archive"; then
            if [ -f "$MOONPOOL_SOURCES/$archive" ]; then
                say "$MOONPOOL_SOURCES/$archive is another file: its SHA-256 has to be $hash"
            else
                say "MOONPOOL_SOURCES=$MOONPOOL_SOURCES has no $archive (SHA-256 $hash)"
            fi
            exit 1
        fi
        cp "$MOONPOOL_SOURCES/$archive" "$copy"
    else
        fetch "$copy" || true
    fi
    if ! is_whole "$copy"; then
        rm -f "$copy"
        say "$archive (SHA-256 $hash) cannot be had from the mirror of this machine's apt."
        say "Put a file of that name and hash into a folder, and build with MOONPOOL_SOURCES=FOLDER."
        exit 1
    fi
    mv "$copy" "$store/$archive"
}

# The SQL parser and the one file of all sources that the library is compiled from are generated. DELETE and UPDATE with LIMIT are part
# of the grammar.
generate_sqlite() {
    make -s -f main.mk TOP=. BCC=cc TCC=cc TCCX=cc NAWK=awk OPTS=-DSQLITE_ENABLE_UPDATE_DELETE_LIMIT=1 sqlite3.c &&
        find . -mindepth 1 -maxdepth 1 ! -name sqlite3.c ! -name sqlite3.h -exec rm -rf {} +
}

# unpack FOLDER: what the build needs of the archive, with our patches.
unpack() {
    tar -xf "$store/$archive" -C "$1" --strip-components=1 --exclude='*/mruby*' --exclude='*/doc' --exclude='*/srcdoc' --exclude='*/t' --exclude='*.xcodeproj'
    for patch in "$cmake/patches/$library"/*.patch; do
        patch -s -p1 -d "$1" <"$patch" || {
            say "$patch does not apply to $archive"
            exit 1
        }
    done
    if [ "$library" = sqlite ]; then
        (cd "$1" && generate_sqlite) >"$1.log" 2>&1 || {
            cat "$1.log" >&2
            say "sqlite3.c cannot be generated from $archive"
            exit 1
        }
        rm -f "$1.log"
    fi
}

# A change of the archive, of a patch or of this script is another folder.
state=$({ echo "$row" && cat "$0" "$cmake/patches/$library"/*.patch; } | sha256sum - | cut -c 1-12)
folder=$store/$library-$version-$state
if [ ! -d "$folder" ]; then
    obtain
    say "unpacking $archive"
    scratch=$folder.$$
    mkdir "$scratch"
    trap 'rm -rf "$scratch" "$scratch.log"' EXIT
    unpack "$scratch"
    mv -T "$scratch" "$folder" 2>/dev/null || [ -d "$folder" ] # another build was quicker
fi
printf '%s\n' "$folder"
