#!/bin/sh
# For a system without make: installs it (and git), then says what to run. Run as root or with sudo.
set -eu
if ! command -v apt-get >/dev/null 2>&1; then
    echo "tapscope: no apt-get here; install GNU make and git with your system's package manager." >&2
    exit 1
fi
as_root=""
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "tapscope: installing make and git needs root. Run as root:  apt-get install make git" >&2
        exit 1
    fi
    as_root=sudo
fi
$as_root apt-get update
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y --no-install-recommends make git ca-certificates
echo "Now run:  make demo   or   make test"
