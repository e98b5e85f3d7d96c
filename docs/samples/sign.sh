#!/bin/sh
# Sign a call in a shell, with OpenSSL 3: sh sign.sh KEY.pem URL ID < command.json > signature.txt
set -eu
key=$1 url=$2 id=$3 now=${4:-$(date +%s)}
base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

x=$(openssl pkey -in "$key" -pubout -outform DER | tail -c 32 | base64url)
kid=$(printf '{"crv":"Ed25519","kty":"OKP","x":"%s"}' "$x" | openssl dgst -sha256 -binary | base64url)
header='{"alg":"Ed25519","b64":false,"crit":["b64"],"htm":"POST","htu":"%s","iat":%s,"jti":"%s","kid":"%s"}'
protected=$(printf "$header" "$url" "$now" "$id" "$kid" | base64url)
{ printf '%s.' "$protected"; cat; } > "$folder/input"
printf '%s..%s\n' "$protected" "$(openssl pkeyutl -sign -rawin -inkey "$key" -in "$folder/input" | base64url)"
