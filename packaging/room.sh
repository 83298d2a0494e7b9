# room.sh: Debian roots with nothing in them but what is named, for packaging/in-bookworm, packaging/twice and spec/clean-room. What a function needs is in
# `suite`, the root's suite, and in `folder`, where roots and their archives are. It is read by `sh`, as root, in a mount namespace of its own.

# in_namespaces SCRIPT ARGUMENT…: runs the script again, as root, in a mount and a process namespace of its own, with --inside before its arguments.
in_namespaces() {
    [ "$(id -u)" = 0 ] || {
        say "this mounts and calls chroot: run it as root"
        exit 1
    }
    script=$1
    shift
    exec unshare --mount --pid --fork --kill-child --mount-proc --propagation unchanged sh "$script" --inside "$@"
}

# No mount is seen outside. Where / is no mount, as in a chroot, this can be said of a part of it alone, $folder. Only one works in there at a time.
make_private() {
    exec 8>"$folder/lock"
    flock 8
    mount --make-rprivate / 2>/dev/null || { mount --bind "$folder" "$folder" && mount --make-private "$folder"; }
}

# Unsets all variables but those that the network needs.
keep_network_variables() {
    for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
        case "$name" in
        *_proxy | *_PROXY | NODE_EXTRA_CA_CERTS | SSL_CERT_FILE | SSL_CERT_DIR | REQUESTS_CA_BUNDLE | PIP_* | npm_config_* | NPM_CONFIG_*) ;;
        CLEAN_ROOM_KEEP | CLEAN_ROOM_MIRROR | CLEAN_ROOM_PACKAGES | MOONPOOL_MAINTAINER | MOONPOOL_SOURCES | ARCHITECTURES) ;;
        *) unset "$name" ;;
        esac
    done
    export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb
}

# The lines of sources.list for the suite, from the mirrors of this machine's own suite.
sources() {
    mirror="" security="" here=$(. /etc/os-release && echo "${VERSION_CODENAME:-none}")
    if [ "$(. /etc/os-release && echo "$ID")" = debian ]; then
        listed=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages')
        mirror=$(printf '%s\n' "$listed" | sed -n "s/^$here //p" | head -n 1)
        security=$(printf '%s\n' "$listed" | sed -n "s/^$here-security //p" | head -n 1)
    fi
    mirror=${mirror:-${CLEAN_ROOM_MIRROR:?no mirror of Debian is known to the apt of this machine: set it to one, http://…/debian/}}
    echo "deb $mirror $suite main"
    [ "$suite" = sid ] || {
        echo "deb $mirror $suite-updates main"
        echo "deb ${security:-${mirror%/debian/}/debian-security/} $suite-security main"
    }
}

# make_tar [PACKAGE…]: $folder/$suite.tar, a root of the suite that has these packages, unless there is one of the last week. The variable
# ARCHITECTURES may have the architectures of its packages.
make_tar() {
    [ -z "$(find "$folder/$suite.tar" -mtime -7 2>/dev/null)" ] || [ "$*" != "$(cat "$folder/$suite.packages" 2>/dev/null)" ] || return 0
    rm -f "$folder/$suite.tar"
    settings="$folder/$suite.settings"
    echo "$*" >"$folder/$suite.packages"
    apt-config dump | grep -E '^Acquire::(https?|Check-|Retries|ForceIPv)' | grep -iv auto-\\?detect >"$settings" || true
    include=$(echo "$*" | tr -s ' ' ,)
    sources | timeout 900 mmdebstrap --quiet --variant=minbase --aptopt="$settings" ${include:+--include="$include"} \
        ${ARCHITECTURES:+--architectures="$ARCHITECTURES"} "$suite" "$folder/$suite.part.tar" - >&2
    mv "$folder/$suite.part.tar" "$folder/$suite.tar"
}

# hand_in PATH…: copies what this machine has of it to the same places in $root.
hand_in() {
    for path in "$@"; do
        if [ -e "$path" ]; then
            mkdir -p "$root$(dirname "$path")"
            rm -rf "$root$path"
            cp -RL "$path" "$root$path"
        fi
    done
}

# unpack ROOT: an empty root at $root, with devices and what the network needs.
unpack() {
    root="$folder/$suite.$1"
    rm -rf "$root"
    mkdir "$root"
    tar -xf "$folder/$suite.tar" -C "$root"
    hand_in /etc/resolv.conf /etc/hosts /usr/local/share/ca-certificates /etc/ssl/certs/ca-certificates.crt \
        /root/.npmrc /etc/npmrc /usr/etc/npmrc /usr/local/etc/npmrc /etc/pip.conf /root/.config/pip/pip.conf /root/.pip/pip.conf
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys" || true
    rm -rf "$root/dev"
    mkdir "$root/dev"
    mount -t tmpfs -o mode=755 dev "$root/dev"
    for name in null zero full random urandom tty; do
        : >"$root/dev/$name"
        mount --bind "/dev/$name" "$root/dev/$name"
    done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    for descriptor in 0:stdin 1:stdout 2:stderr; do
        ln -s "/proc/self/fd/${descriptor%:*}" "$root/dev/${descriptor#*:}"
    done
}
