# What scripts of servers share; sourced by them. A script defines `install_server`, and `start_server PORT`, which calls
# `launch`, `wait_for` and `say`; `run "$@"` does what was asked for. Some take only single functions, or have their own instead.
set -euo pipefail
name=$(basename "$0")
cache=${THALWEG_SERVICES:-$HOME/.cache/thalweg-services}

# absent WHY: the server can't be had.
absent() { echo "$name: $*" >&2; exit 3; }

# locked COMMAND…: one at a time, for installs that several tests may start at once.
locked() { mkdir -p "$cache"; (flock 9 && "$@") 9>"$cache/.$name.lock"; }

# apt_server PROGRAM PACKAGE…: a program of the operating system's packages. Their own servers are not started.
apt_server() {
  local program=$1
  shift
  PATH=$PATH:/usr/sbin
  ! command -v "$program" >/dev/null || return 0
  [ "${command:-}" = install ] || absent "no $program is installed (Debian: apt-get install $*)"
  locked apt_install "$@" >&2 || absent "apt-get install $* fails"
}
apt_install() {
  local guard=/usr/sbin/policy-rc.d made= status=0
  if [ ! -e $guard ]; then printf '#!/bin/sh\nexit 101\n' >$guard && chmod 755 $guard && made=1; fi
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"; } || status=1
  [ -z "$made" ] || rm -f $guard
  return $status
}

# go_server BINARY MODULE: a program that Go builds.
go_server() {
  [ ! -x "$1" ] || return 0
  command -v go >/dev/null || absent "no go is installed to build it with"
  locked go_install "$@" >&2 || absent "go install $2 fails"
}
go_install() {
  [ ! -x "$1" ] || return 0
  mkdir -p "$(dirname "$1")"
  CGO_ENABLED=0 GOBIN=$(dirname "$1") go install -trimpath -ldflags='-s -w' "$2"
}

# A process is known by its number and when it began, so that no other one is ever ended.
born() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
alive() { [ -s "$dir/pid" ] && [ -n "$(born "$(cat "$dir/pid")")" ] && [ "$(born "$(cat "$dir/pid")")" = "$(cat "$dir/born")" ]; }

end() {
  local i
  if alive; then kill "-$1" "$(cat "$dir/pid")" 2>/dev/null || true; fi
  for ((i = 0; i < 400; i++)); do alive || break; sleep 0.05; done
  if alive; then kill -KILL "$(cat "$dir/pid")" 2>/dev/null || true; fi
  for ((i = 0; i < 400; i++)); do alive || break; sleep 0.05; done
  rm -f "$dir/pid" "$dir/born"
}

# port NAME [WANTED]: the one that the folder keeps for this name.
port() {
  local file="$dir/$1.port"
  if [ "${2:-0}" != 0 ]; then echo "$2" >"$file"; fi
  [ -s "$file" ] || "$(dirname "$0")/free-port" >"$file"
  cat "$file"
}

# launch PROGRAM…: in the background.
launch() {
  : >>"$dir/log"
  setsid "$@" >>"$dir/log" 2>&1 </dev/null 9>&- &
  echo $! >"$dir/pid"
  born $! >"$dir/born"
}

# wait_for PROGRAM…: until it succeeds.
wait_for() {
  local i
  for ((i = 0; i < 300; i++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    alive || { tail -15 "$dir/log" >&2; echo "$name: it died while it started" >&2; exit 1; }
    sleep 0.1
  done
  tail -15 "$dir/log" >&2
  echo "$name: it does not answer" >&2
  end KILL
  exit 1
}

# say KEY=VALUE…: what the server is reached by.
say() { printf '%s\n' "$@" "PID=$(cat "$dir/pid")" | tee "$dir/env"; }

run() {
  command=${1:?start, stop, crash or install}
  if [ "$command" = install ]; then install_server; exit; fi
  mkdir -p "${2:?a folder}"
  dir=$(cd "$2" && pwd)
  case $command in
    start)
      if alive; then cat "$dir/env"; exit; fi
      end KILL
      install_server
      start_server "${3:-0}"
      ;;
    stop) end TERM ;;
    crash) end KILL ;;
    *) echo "$name: start, stop, crash or install" >&2; exit 2 ;;
  esac
}
