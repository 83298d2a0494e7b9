#!/bin/sh
# version.sh --seconds: prints the time of the commit in seconds, 0 if it is unknown: the date of all that is packaged.
# version.sh BASE [HEADER]: prints the version of this checkout, and writes it as MOONPOOL_VERSION into HEADER if it has changed.
# At the tag vX.Y.Z it is X.Y.Z. Elsewhere it is BASE, the time of the commit (UTC) and its hash, so that it grows with each commit, in a
# shallow clone as well: 0.1.0+20261126071500.gf64a483d. ".dirty" is added where files are changed or new,
# but not where some are missing (a container builds from a part of them). An archive that git has made knows its
# commit by this file; what has neither is BASE.
set -eu
built="cmake core docs examples lua man packaging" # a file that is new in there is built or packaged, too
archived='$Format:%ct %H %(describe:tags=true,match=v[0-9]*)$' # git archive puts the commit's time, hash and tag here (.gitattributes)

cd "$(dirname "$0")/.."
base=$1 header=${2:-} seconds="" hash="" tag="" dirty=""
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ]; then
    seconds=$(git log -1 --format=%ct)
    hash=$(git log -1 --format=%H)
    tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null) || tag=""
    git diff --quiet --diff-filter=d HEAD && [ -z "$(git ls-files --others --exclude-standard -- $built)" ] || dirty=.dirty
elif [ "${archived#?Format}" = "$archived" ]; then
    # shellcheck disable=SC2086 # split into words on purpose
    set -- $archived
    seconds=$1 hash=$2 tag=${3:-}
    case $tag in *-*) tag="" ;; esac # behind the tag
fi

if [ "$base" = --seconds ]; then
    echo "${seconds:-0}"
    exit
fi
version=$base
[ -z "$seconds" ] || version=$base+$(date -u -d "@$seconds" +%Y%m%d%H%M%S).g$(printf %.8s "$hash") # as many digits in every clone
[ -z "$tag" ] || version=${tag#v}
version=$version$dirty
if [ -n "$header" ]; then
    line="#define MOONPOOL_VERSION \"$version\""
    [ "$(tail -n 1 "$header" 2>/dev/null)" = "$line" ] || printf '/* version.h: made by cmake/version.sh. */\n%s\n' "$line" >"$header"
fi
printf '%s\n' "$version"
