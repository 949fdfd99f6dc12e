# Sourced by ./fairlead, ./test and .ci/run: brings in what a fresh machine lacks, and is instant afterwards.
# Expects $root, the repository; sets $node, the Node.js 24 executable.

NODE_VERSION=24.21.0

say() { printf 'fairlead: %s\n' "$*" >&2; }

# The machine's own Node.js where it is new enough, else the one that the npm registry packages.
setup_node() {
  local have
  node=$root/.runtime/node_modules/node-linux-$(node_arch)/bin/node
  [ -x "$node" ] && return
  # 24.5 has tls.setDefaultCACertificates.
  if have=$(command -v node) && [[ $("$have" --version 2>/dev/null) =~ ^v([0-9]+)\.([0-9]+) ]] &&
    [ $((BASH_REMATCH[1] * 100 + BASH_REMATCH[2])) -ge 2405 ]; then
    node=$have
    return
  fi
  command -v npm >/dev/null || { say "Node.js and npm are needed: install Node.js 20 or later (https://nodejs.org), then run this again"; exit 1; }
  say "installing Node.js $NODE_VERSION below .runtime (this machine has $(node --version 2>/dev/null || echo none))"
  mkdir -p "$root/.runtime"
  npm install --prefix "$root/.runtime" --no-save --no-audit --no-fund --loglevel=error "node-linux-$(node_arch)@$NODE_VERSION" >&2
}

node_arch() {
  case $HOSTTYPE in
    x86_64) echo x64 ;;
    aarch64) echo arm64 ;;
    *) say "this machine is $HOSTTYPE; Fairlead runs on x86_64 and aarch64"; exit 1 ;;
  esac
}

# $1: "production" leaves out what only development needs.
setup_packages() {
  local kind=$1
  # Development packages that are there stay: an installation without them would remove them.
  [ -e "$root/node_modules/.fairlead-development" ] && kind=development
  local stamp=$root/node_modules/.fairlead-$kind
  [ -e "$stamp" ] && [ ! "$root/package-lock.json" -nt "$stamp" ] && return
  say "installing npm packages"
  local omit=()
  [ "$kind" = production ] && omit=(--omit=dev)
  # Not `npm ci`: it refuses a lock file that lacks optional packages of platforms which the registry does not have.
  (cd "$root" && npm install --no-save "${omit[@]}" --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
  touch "$stamp"
}

# $@: command=package pairs; installs the packages whose command is absent.
setup_debian() {
  local pair missing=() names=()
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || [ -x "/usr/sbin/${pair%%=*}" ] || { missing+=("${pair#*=}"); names+=("${pair%%=*}"); }
  done
  [ ${#missing[@]} -eq 0 ] && return
  if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
    say "these commands are missing: ${names[*]}"
    say "install them (Debian and Ubuntu, as root: apt-get install ${missing[*]}), then run this again"
    exit 1
  fi
  say "installing ${missing[*]}"
  local log; log=$(mktemp)
  if ! { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" ||
         { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; }; } >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    say "apt-get could not install ${missing[*]}"
    exit 1
  fi
  rm -f "$log"
}

# The bundle is what starts fast; it is recreated when a source is newer than it.
setup_bundle() {
  local bundle=$root/dist/fairlead.mjs
  if [ -e "$bundle" ] && [ -z "$(find "$root/src" "$root/tools/build.mjs" "$root/package-lock.json" -newer "$bundle" -print -quit)" ]; then return; fi
  "$node" "$root/tools/build.mjs"
}
