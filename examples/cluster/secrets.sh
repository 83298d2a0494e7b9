# Makes the files that are not there yet in the folder `secrets` beside this file, or in another one: sh secrets.sh FOLDER. One certificate is for all gateways.
set -eu
folder=${1:-$(dirname "$0")/secrets}
mkdir -p "$folder" && cd "$folder"
new() { [ -e "$1" ] || openssl rand -hex 32 >"$1"; }
new seal && new redis && new metrics
cat >valkey.conf <<EOF
appendonly yes
maxmemory-policy noeviction
user default off
user moonpool on >$(cat redis) ~mp:example:* resetchannels &mp:example:* +@read +@write -@dangerous +publish +subscribe +unsubscribe +eval +evalsha +script|load +time +role +ping +wait +info +client|setname
EOF
if ! [ -e node.pem ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=moonpool-example-ca -keyout ca.key -out ca.pem 2>/dev/null
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=moonpool-example -keyout node.key -out node.csr 2>/dev/null
    printf 'subjectAltName=DNS:moonpool-example\n' >node.ext
    openssl x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 825 -extfile node.ext -out node.pem 2>/dev/null
    rm -f node.csr node.ext ca.srl
fi
chmod 0644 seal redis metrics valkey.conf node.key # read by the users of the containers; the folder is yours alone
chmod 0700 .
