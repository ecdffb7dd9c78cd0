#!/usr/bin/env bash
# Installs or updates trainwarden with kubectl's current context: `deploy/install.sh IMAGE`. Secrets that are there stay.
set -euo pipefail
image=${1:?say which image, such as registry.example.com/trainwarden:0.1.0}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
namespace=trainwarden
has() { [ -n "$(kubectl get secret "$1" -n $namespace --ignore-not-found -o name)" ]; }

kubectl apply --server-side -f "$here/manifests/namespace.yaml"

for secret in trainwarden-nats trainwarden-nats-training; do
  has $secret || kubectl create secret generic $secret -n $namespace --from-literal=token="$(openssl rand -hex 24)"
done

# An authority of our own signs one certificate for the webhooks and one for the bridge. Where cert-manager does that,
# make the two Secrets and the ConfigMap with it before, and this is passed over.
new=
if has trainwarden-operator-tls; then
  has trainwarden-bridge-tls || { echo "there is trainwarden-operator-tls but no trainwarden-bridge-tls: make both" >&2; exit 1; }
elif has trainwarden-bridge-tls; then
  echo "there is trainwarden-bridge-tls but no trainwarden-operator-tls: make both" >&2
  exit 1
else
  new=yes
  openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=trainwarden" \
    -keyout "$work/ca.key" -out "$work/ca.crt" 2>/dev/null
  for role in operator bridge; do
    openssl req -newkey rsa:2048 -nodes -subj "/CN=trainwarden-$role" \
      -keyout "$work/$role.key" -out "$work/$role.csr" 2>/dev/null
    host=trainwarden-$role.$namespace.svc
    openssl x509 -req -in "$work/$role.csr" -CA "$work/ca.crt" -CAkey "$work/ca.key" -CAcreateserial -days 3650 \
      -extfile <(printf 'subjectAltName=DNS:%s,DNS:%s.cluster.local' "$host" "$host") -out "$work/$role.crt" 2>/dev/null
    kubectl create secret generic trainwarden-$role-tls -n $namespace --type=kubernetes.io/tls \
      --from-file=ca.crt="$work/ca.crt" --from-file=tls.crt="$work/$role.crt" --from-file=tls.key="$work/$role.key"
  done
fi
authority=$(kubectl get secret trainwarden-operator-tls -n $namespace -o 'jsonpath={.data.ca\.crt}')
kubectl get secret trainwarden-bridge-tls -n $namespace -o 'jsonpath={.data.ca\.crt}' | base64 -d >"$work/bridge-ca.crt"
kubectl create configmap trainwarden-bridge-ca -n $namespace --from-file=ca.crt="$work/bridge-ca.crt" \
  --dry-run=client -o yaml | kubectl apply --server-side -f -

# The webhooks are told which authority has signed the operator's certificate.
kubectl kustomize "$here" | sed -e "s|image: trainwarden\$|image: $image|" \
  -e "s|^\( *\)clientConfig:\$|&\n\1  caBundle: $authority|" >"$work/all.yaml"
kubectl apply --server-side --force-conflicts -f "$work/all.yaml"
if [ -n "$new" ]; then  # roles that run already have read others
  kubectl rollout restart deployment/trainwarden-operator deployment/trainwarden-bridge -n $namespace
fi
for role in engine notifier operator bridge; do
  kubectl rollout status deployment/trainwarden-$role -n $namespace --timeout=5m
done
