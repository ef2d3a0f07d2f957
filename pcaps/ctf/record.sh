#!/bin/sh
# Records a user-space trace of three services: record.sh FOLDER [CLIENTS] [CALLS]
# Needs the Debian packages gcc, lttng-tools and liblttng-ust-dev.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
work=$(mktemp -d)
gcc -O2 -Wall -I"$here/../../validate/testbed/vapp" -o "$work/services" "$here/services.c" -llttng-ust -lpthread
cd "$work"

started=""
if ! lttng list >/dev/null 2>&1; then
    lttng-sessiond --daemonize --pidfile="$work/sessiond.pid"
    started=$(cat "$work/sessiond.pid")
fi
lttng create tapscope-services --output="$out"
lttng enable-channel --userspace --num-subbuf=4 --subbuf-size=64k annotations
lttng enable-event --userspace --channel=annotations 'zipkin:*'
lttng start

servers=""
for service in db app web; do
    "$work/services" $service & servers="$servers $!"
done
while [ ! -S web.sock ] || [ ! -S app.sock ] || [ ! -S db.sock ]; do sleep 0.1; done
sleep 0.2 # a socket is there a moment before it listens
"$work/services" load "${2:-4}" "${3:-10}"
kill $servers
lttng destroy tapscope-services
[ -z "$started" ] || kill "$started"
cd / && rm -r "$work"
