#!/usr/bin/env bash
# A session of a new operator on loopback: installs the package, starts it, sends checks, protects an
# application with nginx, tries ten invalid configurations, rotates the key, reloads, reads the
# metrics by a service name, restarts and stops. Every command comes from the documentation.
#
# operator-session.sh <package.tgz> <port> <admin port> <gateway port> <nginx port> <application port>
#
# Works in the current directory, which must be empty. Exits with 0, or prints the step that failed.
set -euo pipefail
# The longest duration: no window ends during the session.
window=3155760000000
package=$1 port=$2 admin=$3 gateway=$4 front=$5 application=$6
started=()
trap 'for pid in "${started[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done; wait' EXIT

fail() { echo "FAILED: $*" >&2; echo "--- log" >&2; tail -20 log >&2 || true; exit 1; }
step() { echo "== $*"; }
weir() { node_modules/.bin/weir "$@"; }
# expect CODE COMMAND...: runs a command, checks its exit code, and stores its output in `output`.
expect() {
  local wanted=$1 code=0
  shift
  output=$("$@" 2>&1) || code=$?
  echo "\$ $* -> $code: ${output:0:300}"
  [ "$code" -eq "$wanted" ] || fail "\"$*\" exited with $code, not $wanted: $output"
}
has() { grep -qF -- "$1" <<<"$output" || fail "\"$1\" is not in: $output"; }
until_true() { for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep 0.05; done; fail "timeout: $*"; }
lines_with() { grep -cF -- "$1" log || true; }
start_weir() {
  node_modules/.bin/weir --config weir.json --port "$port" --admin-port "$admin" \
    --gateway-port "$gateway" >out 2>>log &
  server=$!
  started+=("$server")
  until_true curl -sf "http://127.0.0.1:$admin/readyz"
}
stop_weir() {
  local code=0
  kill -TERM "$server"
  wait "$server" || code=$?
  [ "$code" -eq 0 ] || fail "SIGTERM: weir exited with $code"
}
# reload TEXT: sends SIGHUP, and waits until the log has one more line with the text.
reload() {
  local before
  before=$(lines_with "$1")
  kill -HUP "$server"
  until_true eval "[ \$(lines_with '$1') -gt $before ]"
}
# through_nginx COUNT: prints the statuses of sequential requests.
through_nginx() {
  local statuses=""
  for _ in $(seq "$1"); do
    statuses+="$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$front/") "
  done
  echo "$statuses"
}

step install
expect 0 npm install --silent --no-audit --no-fund --omit=dev "$package"
expect 0 weir --version
expect 0 weir --help
has overrides
expect 0 weir help serve
has WEIR_ADMIN_HOSTS

step start
echo '{ "policies": {} }' >weir.json
start_weir
grep -q "$admin" out || fail "the start does not print the admin address: $(cat out)"
line=$(grep '^curl' out) || fail "the start prints no curl command: $(cat out)"
expect 0 bash -c "$line"
has '"success":true'
eval "$(grep '^export WEIR_KEY=' out)"
export WEIR_URL="http://127.0.0.1:$port"

step check
expect 0 weir check user_1 --limit 2 --duration 30d --namespace shop
has allowed
expect 0 weir check user_1 --limit 2 --duration 30d --namespace shop
expect 1 weir check user_1 --limit 2 --duration 30d --namespace shop
has denied
expect 0 weir reset user_1 --namespace shop
expect 0 weir overrides set x --limit 0 --duration 30d --namespace shop
expect 1 weir check x --limit 2 --duration 30d --namespace shop
expect 0 weir namespaces list --json
has '"shop"'
expect 2 weir check user_1 --limit 2
has '--duration is required'
expect 2 weir check "" --limit 2 --duration 30d
has --empty-identifier

step protect an application with nginx
node -e "require('http').createServer((_, res) => res.end('application')).listen($application, '127.0.0.1')" >/dev/null 2>&1 &
started+=("$!")
cat >weir.json <<EOF
{
  "\$schema": "./weir.schema.json",
  "policies": {
    "login": { "gateway": "nginx", "limit": 3, "duration": $window, "missing": "deny" }
  }
}
EOF
expect 0 weir config check weir.json
reload 'the policies were reloaded'
weir gateway nginx --listen "$front" --upstream "http://127.0.0.1:$application" >nginx.conf
mkdir nginx
nginx -p nginx -c "$PWD/nginx.conf" -g 'daemon off;' >nginx.log 2>&1 &
started+=("$!")
until_true curl -s "http://127.0.0.1:$front/"
expect 0 weir reset --namespace login 127.0.0.1
expect 0 through_nginx 4
has '200 200 200 429'

step try ten invalid configurations
cp weir.json right.json
# broken TEXT FILE: the check of the file must print the text; the server keeps its configuration.
broken() {
  echo "$2" >weir.json
  expect 2 weir config check weir.json
  has "$1"
  reload 'the policies were not reloaded'
}
policy() { echo "{ \"policies\": { \"login\": { \"gateway\": \"nginx\", $1 } } }"; }
broken 'line 2, column 1' '{ "policies": { '
broken 'line 2, column 1' '{ "port": 7070,
}'
broken 'line 3, column 3' '{
  "port": 7070,
  "port": 7071 }'
broken adminPort '{ "adminPrt": 7071 }'
broken 'an integer from' '{ "port": "7070" }'
broken '"limit" is required' "$(policy '"duration": 60000')"
broken milliseconds "$(policy '"limit": 3, "duration": 60')"
broken 'share, allow or deny' "$(policy '"limit": 3, "duration": 60000, "missing": "block"')"
broken '"limit"' "$(policy '"limt": 3, "duration": 60000')"
broken 'must be one of nginx, caddy' '{ "policies": { "login": { "gateway": "ngnix", "limit": 3, "duration": 60000 } } }'
expect 0 through_nginx 1
has 429
code=0
weir --config weir.json --port "$((port + 1))" >/dev/null 2>start.log || code=$?
[ "$code" -eq 2 ] || fail "a start with an invalid file exited with $code: $(cat start.log)"
[ "$(wc -l <start.log)" -eq 1 ] || fail "a failed start prints more than one line: $(cat start.log)"

step rotate the key
first=$WEIR_KEY
expect 0 weir keys create --name operator --permission '*' --json
key=$(sed -n 's/.*"key":"\([^"]*\)".*/\1/p' <<<"$output")
expect 0 weir keys list --json
first_id=$(sed -n 's/.*"keyId":"\([^"]*\)","name":"first root key".*/\1/p' <<<"$output")
export WEIR_KEY=$key
expect 0 weir keys revoke "$first_id"
expect 4 env WEIR_KEY="$first" node_modules/.bin/weir namespaces list
has UNAUTHORIZED
expect 0 weir audit list
has key.revoke
has override.create

step reload
sed 's/"limit": 3/"limit": 5/' right.json >weir.json
expect 0 weir config check weir.json
reload 'the policies were reloaded'
expect 0 through_nginx 3
has '200 200 429'

step read the metrics by a service name
expect 0 curl -sf --resolve "weir:$admin:127.0.0.1" "http://weir:$admin/metrics"
has 'weir_build_info{'
expect 0 curl -sf --http1.0 -H 'Host:' "http://127.0.0.1:$admin/readyz?verbose"
has ready
expect 0 curl -sf "http://127.0.0.1:$admin/"
has /metrics

step restart
stop_weir
expect 3 weir namespaces list
start_weir
! grep -q Bearer out || fail 'the second start prints a key'
expect 1 weir check x --limit 2 --duration 30d --namespace shop
expect 0 through_nginx 1
has 429

step stop
stop_weir
expect 7 curl -s "http://127.0.0.1:$admin/livez"
echo 'the session succeeded'
