#!/bin/sh
# The main job in three commands: take in agent histories, list them, search them.
#
# Your own histories are imported when there are any (Claude Code, Codex, crow),
# else the example beside this file. Everything lands in one SQLite file under
# .demo, nothing leaves the machine, and the histories are only read. Running it
# again adds what is new. The first argument is what to search for.
set -eu
cd "$(dirname "$0")/.."
crowmem=${CROWMEM:-crowmem}
store=.demo/crow.db
query=${1:-error}

say() {
    printf '\n$ %s\n' "$*" >&2
    "$@"
}

mkdir -p .demo
# One history that cannot be read is told, and does not keep the others from being shown.
say "$crowmem" --db "$store" import --discover || echo "going on with what could be imported" >&2
if [ -z "$("$crowmem" --db "$store" --json sessions --limit 1 2>/dev/null)" ]; then
    echo "no histories of your own were found: here is the example" >&2
    say "$crowmem" --db "$store" import examples/transcripts
fi
say "$crowmem" --db "$store" sessions --limit 10
say "$crowmem" --db "$store" search --limit 5 -- "$query"
