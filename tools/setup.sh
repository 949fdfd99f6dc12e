# Sourced by ./fairlead, ./test and tools/run: brings in what a fresh machine lacks, and is instant afterwards. For any POSIX
# shell. Expects $root, the repository; sets $node, the Node.js 24 executable.

NODE_VERSION=24.21.0

say() { printf 'fairlead: %s\n' "$*" >&2; }

# Programs of administrators are not in every user's PATH (su, cron).
case :$PATH: in
  *:/usr/sbin:*) ;;
  *) PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin ;;
esac
export PATH

# Ends on systems other than Linux, with the ways to run it there.
setup_system() {
  [ ! -e /proc/self/ns/net ] || return 0
  case $(uname -s) in
    Linux) return 0 ;;
    Darwin) say "Fairlead runs on Linux only; on macOS in a virtual machine of Lima (brew install lima; limactl start; lima ./fairlead …) or OrbStack (orb create debian; orb ./fairlead …), or in a container: docker run --privileged -it -v \"\$PWD:/fairlead\" -w /fairlead node:24 bash" ;;
    *) say "Fairlead runs on Linux only; on Windows in WSL2: run \"wsl --install -d Debian\" as administrator, then this in its shell" ;;
  esac
  exit 1
}

# The machine's own Node.js where it is new enough, else the one that the npm registry packages.
setup_node() {
  local version major minor
  for node in "$root"/.runtime/node_modules/node-linux-*/bin/node; do
    [ ! -x "$node" ] || return 0
  done
  # 24.5 has tls.setDefaultCACertificates.
  if node=$(command -v node) && version=$("$node" --version 2>/dev/null); then
    major=${version#v} minor=${version#*.}
    major=${major%%.*} minor=${minor%%.*}
    case $major$minor in
      '' | *[!0-9]*) ;;
      *) if [ $((major * 100 + minor)) -ge 2405 ]; then return 0; fi ;;
    esac
  fi
  install_node "this machine has ${version:-none}"
}

# The sources need a Node.js that strips types, which that of Debian and Ubuntu does not.
setup_typescript() {
  case $("$node" -p process.features.typescript 2>/dev/null) in
    strip | transform) ;;
    *) install_node "that of this machine does not strip types" ;;
  esac
}

install_node() {
  local arch loader
  arch=$(node_arch) || exit 1
  for loader in /lib/ld-musl-*; do
    [ ! -e "$loader" ] || { say "the C library of this system is musl, for which npm has no Node.js: install Node.js 24.5 or later (Alpine: apk add nodejs npm), or use a container with glibc, such as node:24"; exit 1; }
  done
  if [ ! -e /lib64/ld-linux-x86-64.so.2 ] && [ ! -e /lib/ld-linux-aarch64.so.1 ]; then
    say "the Node.js of npm does not start on this system (NixOS?): install Node.js 24.5 or later (nix-shell -p nodejs_24 crun conmon catatonit iptables)"
    exit 1
  fi
  command -v npm >/dev/null || { say "Node.js and npm are needed: install Node.js 20 or later (https://nodejs.org), then run this again"; exit 1; }
  may_write "$root/.runtime" || { cannot_write "Node.js $NODE_VERSION ($1)"; exit 1; }
  say "installing Node.js $NODE_VERSION below .runtime ($1)"
  mkdir -p "$root/.runtime"
  npm install --prefix "$root/.runtime" --no-save --no-audit --no-fund --loglevel=error "node-linux-$arch@$NODE_VERSION" >&2 ||
    { say "npm could not install Node.js $NODE_VERSION (status $?)"; exit 1; }
  node=$root/.runtime/node_modules/node-linux-$arch/bin/node
}

node_arch() {
  local machine
  machine=$(uname -m)
  case $machine in
    x86_64) echo x64 ;;
    aarch64) echo arm64 ;;
    *) say "this machine is $machine; Fairlead runs on x86_64 and aarch64"; exit 1 ;;
  esac
}

# $1: a folder, which need not exist.
may_write() {
  if [ -e "$1" ]; then [ -w "$1" ]; else [ -w "${1%/*}" ]; fi
}

# $1: what cannot be written.
cannot_write() {
  local owner
  owner=$(stat -c %U "$root" 2>/dev/null) || owner='its owner'
  say "cannot write $1 to $root: run this once as $owner, where the folder can be written, or use a copy of your own"
}

# $1: "production" leaves out what only development needs.
setup_packages() {
  local kind=$1 stamp
  # Development packages that are there stay: an installation without them would remove them.
  if [ -e "$root/node_modules/.fairlead-development" ]; then kind=development; fi
  stamp=$root/node_modules/.fairlead-$kind
  if [ -e "$stamp" ] && [ ! "$root/package-lock.json" -nt "$stamp" ]; then return 0; fi
  if ! may_write "$root/node_modules"; then
    # Then the bundle of its owner runs with the packages that are there.
    if [ -e "$stamp" ] && [ -e "$root/dist/fairlead.mjs" ]; then return 0; fi
    cannot_write 'npm packages'
    exit 1
  fi
  say "installing npm packages"
  # Not `npm ci`: it refuses a lock file that lacks optional packages of platforms which the registry does not have.
  (cd "$root" && npm install --no-save $([ "$kind" != production ] || echo --omit=dev) --ignore-scripts --no-audit --no-fund --loglevel=error >&2) ||
    { say "npm could not install the packages (status $?)"; exit 1; }
  touch "$stamp"
}

# $@: command=package pairs, with Debian's names; installs the packages whose command is absent.
setup_debian() {
  local pair missing='' names='' log
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || { missing="$missing ${pair#*=}"; names="$names ${pair%%=*}"; }
  done
  [ -n "$missing" ] || return 0
  if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
    say "these commands are missing:$names"
    say "install them ($(install_words "$missing")), then run this again"
    exit 1
  fi
  say "installing$missing"
  log=$(mktemp)
  # shellcheck disable=SC2086
  if ! { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing ||
         { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; }; } >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    say "apt-get could not install$missing"
    exit 1
  fi
  rm -f "$log"
}

# $@: the arguments of `up`: whether they name an Ingress or a Gateway, for which nodes run HAProxy.
wants_gateway() {
  local word
  for word in "$@"; do
    case $word in */ingress) return 0 ;; esac
    [ ! -f "$word" ] || ! grep -Eq '^[ -]*"?kind"?: *"?(Ingress|Gateway)"?,? *$' "$word" || return 0
  done
  return 1
}

# As setup_debian, for what a cluster also works without: `status` says what is missing where it cannot be installed.
setup_optional() {
  if command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then setup_debian "$@"; fi
}

# Prints the command that installs packages, $1 with Debian's names, on this distribution (os-release(5)).
install_words() {
  local ids
  ids=$(. "${OS_RELEASE:-/etc/os-release}" 2>/dev/null && echo " ${ID:-} ${ID_LIKE:-} ") || ids=
  case $ids in
    *' debian '* | *' ubuntu '*) echo "as root: apt-get install$1" ;;
    *' fedora '* | *' rhel '* | *' centos '*) echo "as root: dnf install$(echo "$1" | sed 's/ iptables\b/ iptables-nft/')" ;;
    *' arch '* | *' archlinux '*) echo "as root: pacman -S$1" ;;
    *' alpine '*) echo "as root: apk add$1" ;;
    *' suse '* | *' opensuse '* | *' opensuse-'*) echo "as root: zypper install$1" ;;
    *' nixos '*) echo "nix-shell -p$1" ;;
    *) echo "Debian and Ubuntu, as root: apt-get install$1; other systems have packages of these names" ;;
  esac
}

is_bundle_fresh() {
  [ -e "$root/dist/fairlead.mjs" ] &&
    [ -z "$(find "$root/src" "$root/tools/build.mjs" "$root/package-lock.json" -newer "$root/dist/fairlead.mjs" -print -quit)" ]
}

# The bundle is what starts fast; it is recreated when a source is newer than it.
setup_bundle() {
  ! is_bundle_fresh || return 0
  if ! may_write "$root/dist"; then
    if [ ! -e "$root/dist/fairlead.mjs" ]; then cannot_write 'the bundle'; exit 1; fi
    say "the bundle is older than the sources, and $root/dist is not yours to write: the bundle runs as it is; its owner renews it by any command"
    return 0
  fi
  setup_typescript
  if ! command -v flock >/dev/null; then
    "$node" "$root/tools/build.mjs"
    return
  fi
  # One of several commands that start at the same moment: each build takes 600 MB of memory and ten seconds of processor.
  (
    flock 9
    # Not the last command: the shell would become it, and close the lock.
    is_bundle_fresh || "$node" "$root/tools/build.mjs" 9<&- || exit
  ) 9<"$root/tools/build.mjs"
}
