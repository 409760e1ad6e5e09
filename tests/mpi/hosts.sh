#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two hosts: network namespaces with names and addresses of their own and a cable between them. The launcher reaches
# the second by a stand-in for ssh, which hands on no environment, as ssh does.
if [ -z "${SY_TWO_HOSTS:-}" ]; then
    for tool in unshare nsenter ip pgrep; do
        command -v $tool >/dev/null || { echo "skipped: there is no program $tool to make hosts with"; exit 77; }
    done
    spaces="--net --uts --mount --map-root-user"
    [ "$(id -u)" -ne 0 ] || spaces="--net --uts --mount"
    # shellcheck disable=SC2086 # options
    if ! unshare $spaces sh -c 'ip link set lo up && mount -t sysfs none /sys' >/dev/null 2>&1; then
        echo "skipped: this system lets nobody make network namespaces, which stand for hosts here"
        exit 77
    fi
    export SY_TWO_HOSTS=1
    # shellcheck disable=SC2086
    exec unshare $spaces -- sh "$0"
fi
. "$(dirname "$0")/_common.sh"
trap 'exit 99' HUP INT TERM # the second host ends, too
trap '[ -z "$owner" ] || kill -KILL "$owner" 2>/dev/null; umount -l "$here/small"; rm -rf "$here"' EXIT
one=10.77.0.1 two=10.77.0.2

# ---- the hosts ----

# $keeper: the first process of the second host; all others there end with it.
mkdir "$here/local" "$here/shared" "$here/small"
mount -t tmpfs -o size=1m none "$here/small"
hostname one
mount -t sysfs none /sys # MPIs look there for the interfaces, each host for its own
ip link set lo up
unshare --net --uts --pid --fork --kill-child --mount-proc sh -c \
    "mount -t sysfs none /sys; mount -t tmpfs none '$here/local'; hostname two; exec sleep 600" &
owner=$!
eventually pgrep -P $owner >/dev/null
keeper=$(pgrep -P $owner)
on_two="nsenter -t $keeper --net --uts --mount --pid"
eventually sh -c "[ \"\$($on_two hostname)\" = two ]"
ip link add cable1 type veth peer name cable2 && ip link set cable2 netns "$keeper"
ip addr add $one/24 dev cable1 && ip link set cable1 up
$on_two sh -c "ip link set lo up && ip addr add $two/24 dev cable2 && ip link set cable2 up" || fail "no cable"

cat >"$here/rsh" <<EOF
#!/bin/sh
while :; do case \$1 in -*) shift ;; *) break ;; esac; done
echo "\$1" >>"$here/reached"
[ "\$1" = $two ] || exit 255
shift
exec env -i PATH="$PATH" HOME="${HOME:-/}" $on_two sh -c "cd /; \$*"
EOF
chmod +x "$here/rsh"

# hosts EACH COMMAND...: EACH ranks on each of the two, with the variables of this program handed on.
hosts() {
    each=$1
    shift
    case $launcher in
    *oversubscribe*)
        hand_on=
        for name in $(env | sed -n 's/^\(SWITCHYARD_[A-Z_]*\)=.*/\1/p') $more; do hand_on="$hand_on -x $name"; done
        # shellcheck disable=SC2086 # a command and its options
        timeout -k 5 180 $launcher --mca plm_rsh_agent "$here/rsh" --host $one:"$each",$two:"$each" $hand_on \
            --bind-to none -n $((2 * each)) "$@"
        ;;
    *)
        timeout -k 5 180 $launcher -launcher ssh -launcher-exec "$here/rsh" -hosts $one,$two -ppn "$each" \
            -n $((2 * each)) "$@"
        ;;
    esac
}
export UCX_TLS=tcp,self # UCX, which an MPI may go over, sees one machine and would look for its shared memory
more=UCX_TLS # names of other variables

# train NAME EACH ARGUMENTS...: EACH ranks on each host train in $here/NAME; output in its base name's .out and .err.
train() {
    run=$1 each=$2 base=$(basename "$1")
    shift 2
    hosts "$each" $before "$program" train "$top/bench/tiny.run" --run-dir "$here/$run" --quiet \
        --set task.words.train="$data" "$@" >"$here/$base.out" 2>"$here/$base.err" </dev/null
}
before= # what stands before the program's name
data=$here/train.tsv

# same NAME: that training gave the weights of one process.
same() {
    [ "$(hash_in "$1.out")" = "$want" ] || fail "$1: other weights: $(cat "$here/$1.out" "$here/$1.err")"
}

tiny self --quiet --comm self >"$here/self.out" 2>&1 || fail "self: $(cat "$here/self.out")"
want=$(hash_in self.out)
[ "${#want}" -eq 64 ] || fail "no hash of the reference run: $(cat "$here/self.out")"

# ---- a rank on each host: one run directory, variables reach the other host ----
export SWITCHYARD_LOG_RANKS=all
if ! train pair 1; then
    fail "pair: $(cat "$here/pair.err")"
    finish # nothing else will work
fi
same pair
says reached "^$two\$"
says pair/ranks/rank-0.log " rank 0 of 2 on host one,"
says pair/ranks/rank-1.log " rank 1 of 2 on host two,"
[ "$(grep -c '^done' "$here/pair.out")" -eq 1 ] || fail "pair: printed more than once: $(cat "$here/pair.out")"

# ---- two on each: they share the host's processors, or have those that the launcher gave them ----
cpus=$(query self "SELECT text FROM event WHERE kind = 'launch'" | sed -n 's/.* on \([0-9]*\) CPUs*, .*/\1/p')
share=$((cpus / 2 > 0 ? cpus / 2 : 1))
train four 2 --set mesh.expert=2 || fail "four: exit $?: $(cat "$here/four.err")"
same four
cat "$here"/four/ranks/rank-?.log >"$here/logs"
[ "$(grep -c " rank [0-3] of 4 on host .*, $share threads*, " "$here/logs")" -eq 4 ] ||
    fail "four: not $share of $cpus CPUs for each rank: $(cat "$here/logs")"
for host in one two; do
    [ "$(grep -c " of 4 on host $host," "$here/logs")" -eq 2 ] || fail "four: not two ranks on host $host: $(cat "$here/logs")"
done

case $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status) in
*[-,]*)
    case $launcher in *oversubscribe*) to_core=--bind-to ;; *) to_core=-bind-to ;; esac
    # shellcheck disable=SC2086 # a command and its options
    timeout -k 5 180 $launcher $to_core core -n 2 "$program" train "$top/bench/tiny.run" --run-dir "$here/bound" --quiet \
        --set task.words.train="$data" --set train.steps=1 >"$here/bound.out" 2>&1 </dev/null || fail "bound: $(cat "$here/bound.out")"
    cat "$here"/bound/ranks/rank-?.log | sed -n "s/.* on host one, .*, 1 thread, \(CPUs [0-9]*\), .*/\1/p" >"$here/sets"
    [ "$(sort -u "$here/sets" | wc -l)" -eq 2 ] || fail "bound: not a processor for each rank: $(cat "$here/bound/ranks"/*)"
    ;;
*) echo "skipped: ranks bound to processors of their own (there is one processor)" ;;
esac

# ---- a processor of another kind on the second host: both take the kernels that both have ----
cat >"$here/mixed" <<'EOF'
#!/bin/sh
[ "$(hostname)" != two ] || export SWITCHYARD_CPU_VARIANT=portable
exec "$@"
EOF
chmod +x "$here/mixed"
before=$here/mixed
train kinds 1 || fail "kinds: exit $?: $(cat "$here/kinds.err")"
before=
same kinds
[ "$(query kinds "SELECT count(*) FROM event WHERE kind = 'launch' AND text LIKE '%cpu (portable)%comm mpi%'")" = 1 ] ||
    fail "kinds: not stored: $(query kinds "SELECT text FROM event")"

# ---- a folder or a file that the hosts do not share ----
train local/run 1
[ $? -eq 1 ] || fail "local: not exit 1: $(cat "$here/run.err")"
one_message run 'rank 1 does not see the run directory .*/local/run that rank 0 made'
cp "$here/train.tsv" "$here/local"
data "$here/other.tsv" 500 2
$on_two cp "$here/other.tsv" "$here/local/train.tsv"
data=$here/local/train.tsv
train shared/data 1
[ $? -eq 1 ] || fail "data: not exit 1: $(cat "$here/data.err")"
one_message data 'rank 1 reads another .*/local/train.tsv than rank 0'
data=$here/train.tsv

# ---- copies of the data: a disk of each host's own, one that has no room ----
train copied 2 --set mesh.expert=2 --set data.stage="$here/local/disk" || fail "copied: exit $?: $(cat "$here/copied.err")"
same copied
says copied/log ' data.stage: 2 files of .* copied to 2 nodes in '
cmp -s "$here/train.tsv" "$here"/local/disk/train.tsv-* || fail "copied: no copy on host one"
$on_two sh -c "cmp -s '$here/train.tsv' '$here'/local/disk/train.tsv-*" || fail "copied: no copy on host two"
data "$here/large.tsv" 100000 4
data=$here/large.tsv
train shared/room 1 --set data.stage="$here/small"
[ $? -eq 1 ] || fail "room: not exit 1: $(cat "$here/room.err")"
one_message room 'data.stage: .*/small on host one has room for [01][.]. MiB, and [1-9][.]. MiB of data are to be copied'
data=$here/train.tsv

# ---- a disk that is full ----
train small/full 1
[ $? -eq 1 ] || fail "full: not exit 1: $(cat "$here/full.err")"
one_message full 'checkpoint of step 20 was not written.*No space left on device'

# ---- the plugins are not where they are on the first host ----
cat >"$here/bare" <<'EOF'
#!/bin/sh
[ "$(hostname)" != two ] || export SWITCHYARD_BACKEND_PATH=/nowhere
exec "$@"
EOF
chmod +x "$here/bare"
before=$here/bare
train bare 1
[ $? -ne 0 ] || fail "bare: exit 0"
before=
one_message bare 'rank 1 .*host two.*/nowhere'

# ---- the cable is cut ----
export SWITCHYARD_COMM_TIMEOUT=3
train cut 1 --set train.steps=1000000 --set train.checkpoint_every=50 &
training=$!
eventually test -e "$here/cut/checkpoints/50"
ip link set cable1 down
eventually grep -q 'waited 3 s' "$here/cut/ranks/rank-0.log"
eventually grep -q 'waited 3 s' "$here/cut/ranks/rank-1.log"
ip link set cable1 up # now the launcher can end, too
wait $training
[ $? -ne 0 ] || fail "cut: exit 0"
says cut.err 'switchyard: .*rank [01] of 2 waited 3 s for '
finish
