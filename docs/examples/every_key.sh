#!/usr/bin/env bash
# Rotates and revokes the key of every role against running services: an SRO, a TDP, a TDC, an auditor, an adviser (TSO),
# the attester of clean rooms, the issuer of access tokens and the log. A clean room trains meanwhile, and the answers say
# which pending runs a revocation touches. Everything runs on this machine, in a folder that it makes.
#
#     bash docs/examples/every_key.sh FOLDER [PORT [ISSUER_PORT]]
#
# `epsilon` has to be on the path. What must be refused is checked too: the script ends with 0 only if all is as it says.
set -euo pipefail
folder=$1 port=${2:-8000} issuer_port=${3:-8100}
mkdir "$folder" && cd "$folder"
export XDG_STATE_HOME=$PWD/state OMP_NUM_THREADS=1

say() { printf '\n=== %s\n' "$*"; }
# What is run is shown even where its output goes into a file.
exec 3>&1
show() { printf '$ %s\n' "$*" >&3; "$@"; }
# Runs a command that must end with this code: 3 refused, 6 not authorised, 7 not what the log holds.
ends() {
  local expected=$1 code=0; shift
  printf '$ %s\n' "$*"
  "$@" || code=$?
  [ "$code" = "$expected" ] || { echo "ended with $code, not with $expected"; return 1; }
}
expect() { grep -q -- "$1" "$2" || { echo "$2 lacks: $1"; cat "$2"; return 1; }; }
# Starts a server in the background and waits until it says that it serves.
declare -A running
start() {
  local name=$1; shift
  : > "$name.out"
  "$@" > "$name.out" 2>&1 & running[$name]=$!
  until grep -q 'until interrupted' "$name.out"; do
    kill -0 "${running[$name]}" 2> /dev/null || { cat "$name.out"; return 1; }
    sleep 0.1
  done
}
stop() { kill "${running[$1]}"; wait "${running[$1]}" || true; unset "running[$1]"; }
trap 'for name in "${!running[@]}"; do kill -KILL "${running[$name]}" 2> /dev/null || true; done; wait' EXIT
# The issuer learns outside of the ledger whose key it is; here its profile names the file.
issuer_knows() {
  sed -i "s#^\"did:web:$1.localhost\" = .*#\"did:web:$1.localhost\" = \"keys/$2.pem\"#" world/profile.toml
  stop issuer
  start issuer epsilon dev-issuer world/profile.toml
}
# A party's next key, and a profile that names it.
next_key() {
  show epsilon key new "world/keys/$1-$2.pem" > "$1-$2.jwk"
  sed "s#keys/$1[-0-9]*.pem#keys/$1-$2.pem#" "world/$1.toml" > "world/$1-$2.toml"
}
key_id() { epsilon key show world/sro.toml "did:web:$1.localhost" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["key_id"])'; }
state_of() { epsilon charge show "$1" "$2" --json | python3 -c 'import json, sys; said = json.load(sys.stdin); print(said["state"], said["key_release"] or "")'; }
began=$(date -u +%FT%TZ)
hour=$(date -u -d '+1 hour' +%FT%TZ)

say "A ledger with its parties, in processes of their own"
start up epsilon up world --port "$port" --issuer-port "$issuer_port"
stop up
printf '"did:web:tso.localhost" = "keys/tso.pem"\n' >> world/profile.toml
show epsilon key new world/keys/tso.pem > tso.jwk
sed 's/tdc/tso/g' world/tdc.toml > world/tso.toml
start issuer epsilon dev-issuer world/profile.toml
start service epsilon serve world/profile.toml
epsilon key claim world/tso.toml --name "An adviser" --role TSO > tso.json
show epsilon key register world/sro.toml tso.json

say "The provider's data, a contract, and a clean room that trains"
python3 - <<'PYTHON'
import csv
import random

random.seed(1)
for name, size in (("patients.csv", 400), ("test.csv", 50)):
    with open(name, "w", newline="") as file:
        rows = ([round(random.gauss(0, 1), 6) for _ in range(4)] for _ in range(size))
        csv.writer(file).writerows([["a", "b", "c", "d", "target"], *([*row, int(sum(row) > 0)] for row in rows)])
PYTHON
printf 'v = 1\n\n[records]\ntarget = "target"\n' > schema.toml
sed -i 's/"records": [0-9]*/"records": 400/' world/partition.json
data_key=world/data-keys/did:web:tdp.localhost/example-first
show epsilon dataset seal patients.csv did:web:tdp.localhost/example/first --schema schema.toml --out sealed --key $data_key
show epsilon dataset register world/tdp.toml world/dataset.yaml
show epsilon dataset open-partition world/tdp.toml world/partition.json --commitments sealed/share/commitments-1.bin
epsilon contract sign world/tdp.toml world/contract.yaml > tdp.jws
show epsilon contract enter world/tdc.toml world/contract.yaml --signature tdp.jws
# A run of so many steps, by a profile and an attester's key.
job() {
  cat > "$1.toml" <<TOML
v = 1

[train]
id = "$1"
profile = "world/$2.toml"
contract = "world/contract.yaml"
deadline_s = 3600
block_steps = 20
output = "runs/$1"
model = "linear"
outputs = 2
learning_rate = "0.1"
momentum = "0"
test = "test.csv"
schema = "schema.toml"

[train.attester]
issuer = "https://attester.localhost"
key = "world/keys/$3.pem"

[train.data]
"did:web:tdp.localhost/example/first" = "sealed/share/records.sealed"

[train.plan]
batch_size_expected = 20
clipping_norm = "1"
kind = "dp_sgd"
noise_multiplier = "$5"
steps = $4
v = 1

[train.plan.sampler]
kind = "poisson"
probability = "0.05"
TOML
}
job long tdc attester 200000 100
epsilon train long.toml > long.out 2>&1 & running[long]=$!
until [[ $(state_of world/tdc.toml long 2> /dev/null) == "pending "?* ]]; do
  kill -0 "${running[long]}" 2> /dev/null || { cat long.out; exit 1; }
done
echo "The run 'long' has its data key and trains."
show epsilon charge make world/tdc.toml world/charge.json --contract world/contract.yaml --deadline "$hour" --id waiting
echo "The run 'waiting' is charged, and has no data key yet."

say "TDC: rotated, then stolen. The SRO revokes the old key, and the answer names the pending runs"
next_key tdc 2
old=$(key_id tdc)
show epsilon key rotate world/tdc.toml world/keys/tdc-2.pem --until "$hour"
show epsilon key revoke world/sro.toml "$old" --reason "a laptop was stolen" | tee tdc.out
expect 'touches: 2: long, waiting' tdc.out
expect 'given none any more, so void them: waiting' tdc.out
echo "The thief still gets a token, and signs nothing any more:"
ends 6 epsilon charge make world/tdc.toml world/charge.json --contract world/contract.yaml --deadline "$hour" --id theft
issuer_knows tdc tdc-2
show epsilon charge void world/tdc-2.toml waiting
echo "The clean room that trains has a key of its own, and goes on; it ends at SIGTERM:"
kill -TERM "${running[long]}"; wait "${running[long]}" || true; unset 'running[long]'
tail -n 4 long.out
[[ $(state_of world/tdc-2.toml long) == posted* ]]

say "TDP: rotated, suspended for an inquiry, revoked"
next_key tdp 2
old=$(key_id tdp)
show epsilon charge make world/tdc-2.toml world/charge.json --contract world/contract.yaml --deadline "$hour" --id later
show epsilon key rotate world/tdp.toml world/keys/tdp-2.pem --until "$hour"
show epsilon key suspend world/sro.toml "$old" --reason "an inquiry"
ends 6 epsilon key resume world/tdp.toml "$old" --reason "it is not over"
show epsilon key resume world/sro.toml "$old" --reason "the inquiry is over"
show epsilon key revoke world/sro.toml "$old" --reason "a laptop was stolen" | tee tdp.out
expect 'touches: 1: later' tdp.out
ends 6 epsilon contract revoke world/tdp.toml world/contract.yaml
issuer_knows tdp tdp-2

for role in auditor tso; do
  say "$role: rotated and revoked"
  next_key $role 2
  old=$(key_id $role)
  show epsilon key rotate world/$role.toml world/keys/$role-2.pem --until "$hour"
  show epsilon key revoke world/sro.toml "$old" --reason "a laptop was stolen"
  ends 6 epsilon key revoke world/$role.toml $role-2.jwk --reason "by a thief"
  issuer_knows $role $role-2
  show epsilon account world/$role-2.toml > $role.out
done

say "The attester of clean rooms: both keys count while they overlap, but while one is suspended; then the new one alone"
show epsilon key new world/keys/attester-2.pem > attester-2.jwk
# The next version of the policy, with the attesters of these keys.
policy() {
  python3 - "$@" <<'PYTHON'
import json
import re
import sys
from datetime import datetime, timezone

text = open("world/policy.yaml").read().replace("version: 1\n", f"version: {sys.argv[1]}\n", 1)
now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
text = re.sub('effective: ".*"', f'effective: "{now}"', text)
old = re.search("    - issuer: https://attester.localhost\n      key: .*\n", text)[0]
new = "    - issuer: https://attester.localhost\n      key: " + open("attester-2.jwk").read().strip() + "\n"
suspended = old + '      suspended: {starts: "' + now + '", reason: "an inquiry"}\n'
listed = {"both": [old, new], "suspended": [suspended, new], "new": [new]}[sys.argv[2]]
open(f"policy-{sys.argv[1]}.yaml", "w").write(text.replace(old, "".join(listed)))
PYTHON
}
policy 2 both
show epsilon policy publish world/sro.toml policy-2.yaml --yes
for attester in attester attester-2; do
  job by-$attester tdc-2 $attester 20 20
  show epsilon train by-$attester.toml
done
policy 3 suspended
show epsilon policy publish world/sro.toml policy-3.yaml --yes
job while-suspended tdc-2 attester 20 20
ends 3 epsilon train while-suspended.toml
policy 4 both
show epsilon policy publish world/sro.toml policy-4.yaml --yes
job resumed tdc-2 attester 20 20
show epsilon train resumed.toml
policy 5 new
show epsilon policy publish world/sro.toml policy-5.yaml --yes
job by-thief tdc-2 attester 20 20
ends 3 epsilon train by-thief.toml
job by-room tdc-2 attester-2 20 20
show epsilon train by-room.toml

say "SRO: rotated, revoked by itself; then its last key is lost, and its quorum gives it a new one"
show epsilon key claim-quorum world/sro.toml --member did:web:tdp.localhost --member did:web:tdc.localhost --threshold 2 --id quorum-1 > quorum.json
show epsilon key name-quorum world/sro.toml quorum.json
next_key sro 2
old=$(key_id sro)
show epsilon key rotate world/sro.toml world/keys/sro-2.pem --until "$hour"
issuer_knows sro sro-2
show epsilon key revoke world/sro-2.toml "$old" --reason "a laptop was stolen"
issuer_knows sro sro
ends 6 epsilon key revoke world/sro.toml sro-2.jwk --reason "by a thief"
next_key sro 3
issuer_knows sro sro-3
show epsilon key claim-recovery world/sro-3.toml --id recovery-1 --reason "a theft" \
  --stolen-since "$began" > recovery.json
epsilon key endorse world/tdp-2.toml recovery.json > tdp-endorsed.jws
ends 6 epsilon key recover world/tdp-2.toml recovery.json --signature tdp-endorsed.jws
epsilon key endorse world/tdc-2.toml recovery.json > tdc-endorsed.jws
show epsilon key recover world/tdp-2.toml recovery.json --signature tdp-endorsed.jws --signature tdc-endorsed.jws
show epsilon key show world/sro-3.toml did:web:sro.localhost
show epsilon key signed world/sro-3.toml did:web:sro.localhost --since "$began"
epsilon key signed world/sro-3.toml did:web:sro.localhost --since "$began" --json > signed.json
expect '"recovery_quorum"' signed.json

say "The log: suspended and resumed by its operator, while no service runs"
stop service
show epsilon suspend-log-key world/profile.toml --reason "a laptop is missing"
start service epsilon serve world/profile.toml
echo "While it is suspended nothing is recorded, and reads are answered:"
python3 - "$port" <<'PYTHON'
import sys
from urllib.error import HTTPError
from urllib.request import urlopen

try:
    urlopen(f"http://127.0.0.1:{sys.argv[1]}/readyz")
    sys.exit("it records")
except HTTPError as error:
    said = error.read().decode()
    print(error.code, said)
    sys.exit(not (error.code == 503 and "has suspended the log" in said))
PYTHON
show epsilon account world/tdc-2.toml
stop service
show epsilon suspend-log-key world/profile.toml --reason "it was found" --resume

say "The issuer of access tokens: its next key is in the file that the service reads"
show epsilon key new world/keys/issuer-2.pem > issuer-2.jwk
cp world/issuer.jwks issuer-old.jwks
sed -i 's#keys/issuer.pem#keys/issuer-2.pem#' world/profile.toml
python3 -c 'import json; json.dump({"keys": [json.load(open("issuer-2.jwk"))]}, open("world/issuer.jwks", "w"))'

say "The log: its key is replaced while no service runs by it, with a window in which both keys sign"
show epsilon key new world/keys/log-2.pem > log-2.jwk
show epsilon rotate-log-key world/profile.toml world/keys/log-2.pem --overlap 1000
echo "A service that still has the old key does not start:"
code=0; show epsilon serve world/profile.toml || code=$?
[ "$code" != 0 ]
sed -i 's#^log_key = "keys/log.pem"#log_key = "keys/log-2.pem"\nold_log_key = "keys/log.pem"#' world/profile.toml
start service epsilon serve world/profile.toml
echo "A token by the issuer's old key is refused, one by its new key is not:"
ends 6 epsilon account world/tdc-2.toml
stop issuer
start issuer epsilon dev-issuer world/profile.toml
echo "Profiles go on naming the log's old key: its rotation leads them to the new one."
show epsilon account world/tdc-2.toml

say "What was recorded is true, by the old key of the log and by what it leads to"
stop service
show epsilon verify world/book.sqlite --log world/log.vkey
say "Every key was replaced, and no revoked one signed anything"
