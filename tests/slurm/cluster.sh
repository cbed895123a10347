#!/usr/bin/env bash
# A real Slurm of one node, made of Debian's slurm-wlm and munge, for tests.
#
#   cluster.sh up FOLDER      start it; from then on SLURM_CONF=FOLDER/slurm.conf reaches it
#   cluster.sh down FOLDER    end it
#
# Configuration, key, sockets, logs: all in FOLDER, on ports that are free. A Slurm that the machine
# has already is not touched. What is missing is installed, where we may: as root on Debian or Ubuntu.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
seconds=30 # for a daemon to come up

fail() {
    echo "test-slurm: $1" >&2
    exit "${2:-1}"
}

end() { # the process of a pid file, if it is still the program we think it is
    local pid
    pid=$(cat "$1" 2>/dev/null) || return 0
    case $(cat "/proc/$pid/comm" 2>/dev/null) in
        "$2"*) ;;
        *) return 0 ;;
    esac
    kill "$pid"
    for _ in $(seq $((seconds * 10))); do
        [ -d "/proc/$pid" ] || return 0
        sleep 0.1
    done
    kill -9 "$pid"
}

down() {
    if [ -e "$1/slurmctld.pid" ]; then # what still runs would outlive slurmd
        export SLURM_CONF=$1/slurm.conf
        timeout 10 scancel --full --signal=KILL --user=root 2>/dev/null || true
        for _ in $(seq $((seconds * 2))); do
            [ -n "$(timeout 10 squeue --noheader 2>/dev/null)" ] || break
            sleep 0.5
        done
    fi
    end "$1/slurmd.pid" slurmd
    end "$1/slurmctld.pid" slurmctld
    end "$1/munged.pid" munged
}

missing() {
    for program in munged slurmctld slurmd srun; do
        command -v "$program" >/dev/null || return 0
    done
    return 1
}

[ $# -eq 2 ] || fail "usage: cluster.sh up|down FOLDER"
mkdir -p "$2"
folder=$(cd "$2" && pwd)
if [ "$1" = down ]; then
    down "$folder"
    exit
fi

advice="Slurm is missing; on Debian or Ubuntu, as root: apt-get install slurm-wlm munge"
if missing; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then fail "$advice" 3; fi
    echo "test-slurm: installing slurm-wlm and munge"
    export DEBIAN_FRONTEND=noninteractive
    {
        timeout 300 apt-get update -qq
        timeout 600 apt-get install -y -qq --no-install-recommends slurm-wlm munge
    } >"$folder/apt.log" 2>&1 || true
    if missing; then fail "apt-get could not install it, see $folder/apt.log. $advice" 3; fi
fi
if [ "$(id -u)" != 0 ]; then fail "slurmd starts its jobs as root: run this as root" 3; fi

read -r controller_port node_port < <("${PYTHON:-python3}" -c '
import socket
both = [socket.create_server(("", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in both))')
host=$(hostname -s)

umask 022
chmod 755 "$folder"
mkdir -p "$folder/state" "$folder/spool"
head -c 1024 /dev/urandom >"$folder/munge.key"
chmod 400 "$folder/munge.key"
cat >"$folder/slurm.conf" <<CONF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller_port
SlurmdPort=$node_port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MinJobAge=3600
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=FORCE:2 State=UP
CONF
export SLURM_CONF=$folder/slurm.conf

trap 'down "$folder"' ERR
munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" \
    --seed-file="$folder/munge.seed" 2>>"$folder/munged.err"
slurmctld
slurmd -N "$host"
for _ in $(seq $((seconds * 2))); do
    if [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ]; then
        echo "test-slurm: $(slurmctld -V), one node, 2 CPUs"
        exit 0
    fi
    sleep 0.5
done
down "$folder"
fail "no node came up within $seconds s, see $folder/*.log"
