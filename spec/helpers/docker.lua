-- A program `docker` for pages and specs: does what the commands of examples/deploy mean, with the binary of the build
-- in the place of the image.
--   docker.put(player)     page.lua's option `before`
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"
local shell = require "spec.helpers.shell"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local docker = {}

local SCRIPT <const> = [==[
#!/bin/sh
# The image has no shell variables of the host: env -i. Its folders are below $here. What it prints goes where docker's would.
set -eu
here='HERE'
wrong() { echo "docker: what is $*?" >&2; exit 125; }
image() { [ -e "$here/image" ] || wrong "the image: it is not built"; }
container() { # a program and its arguments, in the place of this one
    exec env -i PATH="$PATH" MOONPOOL_HOST=localhost STATE_DIRECTORY="$here/state" RUNTIME_DIRECTORY="$here/run" MOONPOOL_KEYS="$folder/keys" \
        MOONPOOL_STATE="$here/state" "$@"
}
up() {
    [ -r "$folder/keys" ] || wrong "the secret keys: $folder/keys"
    (cd "$here/state" && container moonpool run "$folder/moonpool.yaml") </dev/null >"$here/log" 2>&1 &
    echo $! >"$here/pid"
    for _ in $(seq 300); do
        # the health check of the Dockerfile
        (container moonpool status --healthy --admin 127.0.0.1:PORT) >/dev/null 2>&1 && return
        sleep 0.1
    done
    cat "$here/log" >&2
    exit 1
}
command=$1
shift
case $command in
build)
    [ "$1 $3 $4 $5" = "--file --tag moonpool ." ] && [ -f "$2" ] || wrong "$*"
    : >"$here/image"
    ;;
run)
    image
    folder=/ workdir=
    while [ "${1#--}" != "$1" ]; do
        case $1 in
        --rm) shift ;;
        --user) shift 2 ;;
        --volume) from=${2%%:*} to=${2##*:}; shift 2 ;;
        --workdir) workdir=$2; shift 2 ;;
        *) wrong "$1" ;;
        esac
    done
    [ "$1" = moonpool ] || wrong "the image $1"
    [ "$workdir" != "$to" ] || cd "$from"
    shift
    container moonpool "$@"
    ;;
compose)
    image
    [ "$1" = --file ] && [ -f "$2" ] || wrong "$1 $2"
    folder=$(cd "$(dirname "$2")" && pwd)
    action=$3
    shift 3
    case $action in
    up) [ "$*" = --detach ] || wrong "$*"; up ;;
    exec)
        [ "$1 $2" = "moonpool moonpool" ] || wrong "$*"
        shift
        cd "$here/state"
        container "$@"
        ;;
    kill) [ "$1 $3" = "--signal moonpool" ] || wrong "$*"; kill -s "${2#SIG}" "$(cat "$here/pid")" ;;
    down) kill "$(cat "$here/pid")"; while kill -0 "$(cat "$here/pid")" 2>/dev/null; do sleep 0.05; done ;;
    *) wrong "$action" ;;
    esac
    ;;
*) wrong "$command" ;;
esac
]==]

-- Ends the gateway that `docker compose up` has started, if it is there.
local function ending(here)
  return setmetatable({}, { __close = function()
    local file <close> = io.open(here .. "/pid", "rb")
    local pid = file and tonumber(file:read "a")
    if not pid or not uv.kill(pid, 0) then return end
    uv.kill(pid, "sigkill")
    wait.for_fact("its end", 10, function() return not uv.kill(pid, 0) end)
  end })
end

--- Puts the program into the PATH of a page, and examples/deploy, with the ports of the page, into its folder.
function docker.put(player)
  local here = player.dir .. "/.docker"
  for _, name in ipairs { "", "/state", "/run" } do assert(uv.fs_mkdir(here .. name, 448)) end
  player:put_program("docker", (SCRIPT:gsub("HERE", here):gsub("PORT", player.by_port["7301"])))
  assert(gateway.run_program("/bin/mkdir", { "-p", player.cwd .. "/examples" }) == 0)
  assert(gateway.run_program("/bin/cp", { "-r", "examples/deploy", player.cwd .. "/examples/" }) == 0)
  os.remove(player.cwd .. "/examples/deploy/keys")
  local path = player.cwd .. "/examples/deploy/moonpool.yaml"
  shell.write(path, player:ports(example.read(path)))
  player.beside[#player.beside + 1] = ending(here)
end

return docker
