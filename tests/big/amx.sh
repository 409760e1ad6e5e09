#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cpu.variant = amx_bf16 as instructions, on a processor with AMX that the PC emulator Bochs makes: the unit tests of tiles,
# and trainings and predictions, whose bits must be those of the emulation in C on this machine. BOCHS: the emulator, KERNEL: a
# Linux from 5.16 on with what a PC has built in (tried: Debian's linux-image-6.1-cloud-amd64, unpacked with dpkg -x). GUEST:
# a new folder that is kept, with the console in serial. Some ten minutes.
#
# Such a Bochs is made of the folder bochs of https://github.com/bochs-emu/Bochs. That of 2026-08-22 (783b58fd) has to be mended
# first, in its folder cpu:
# - It has no XFD, without which Linux gives no tiles: bit 4 of EAX of CPUID 0xd.1 (cpuid.cc), BX_XSAVE_XFD_SUPPORT of the tiles'
#   component (crregs.cc), and the MSRs 0x1c4 and 0x1c5, which take the bit of the tiles' data (msr.cc). Where the first holds it,
#   instructions on tiles and XRSTOR of them raise #NM and leave it in the second (amx.cc), and XSAVE takes tiles for unused
#   and writes zeros (xsave.cc).
# - XSAVE and XRSTOR lose tiles (xsave.cc): in a configuration rows and bytes of a row have changed places, of a tile
#   BX_TILE_MAX_ROWS rows have to be saved and restored, and tiles are in use where tile_use_tracker is not 0, with which it
#   begins (amx.h). The size of the compacted format has to count that components are aligned (cpuid.cc).
# - A float32 difference of numbers with equal exponents is flushed to zero only if it is below 2^-126 (s_subMagsF32.cc).
# - VCVTNE2PS2BF16 takes the upper half of its result from behind its first operand: element n of it there is n -
#   DWORD_ELEMENTS(len) (avx/avx512_bf16.cc). Only attention's gradient of queries uses it.
# Then:
#   ./configure --enable-x86-64 --enable-smp --enable-avx --enable-evex --enable-amx --enable-all-optimizations \
#       --enable-protection-keys --enable-cet --enable-uintr --enable-vmx=2 --with-nogui --prefix=DIR && make && make install
#   BOCHS=DIR/bin/bochs
. "$(dirname "$0")/../cli/_common.sh"
skip() {
    echo "skipped: $*"
    exit 77
}
isolinux=/usr/lib/ISOLINUX/isolinux.bin menu=/usr/lib/syslinux/modules/bios/ldlinux.c32
command -v "${BOCHS:-none}" >/dev/null || skip "BOCHS names no Bochs with AMX; the first lines of this script say how to make one"
[ -r "${KERNEL-}" ] || skip "KERNEL names no Linux kernel (Debian: apt-get download linux-image-6.1.0-NN-cloud-amd64)"
for tool in xorriso cpio busybox; do command -v $tool >/dev/null || skip "there is no $tool (Debian: xorriso, cpio, busybox-static)"; done
[ -r $isolinux ] && [ -r $menu ] || skip "there is no $isolinux (Debian: isolinux, syslinux-common)"
ldd "$(command -v busybox)" >/dev/null 2>&1 && skip "busybox is not static (Debian: busybox-static)"
tests=$abs_top_builddir/tests/unit-tests
[ -x "$tests" ] || skip "there are no unit tests in this build (make check TESTS=)"
guest=${GUEST:-$here/guest}
mkdir "$guest" "$guest/cd" "$guest/root" || exit 99
cd "$guest" || exit 99

# ---- what it shall give: trainings here, with tiles in C ----

# The settings of each run. Heads of 32 columns: tiles multiply in attention, too.
data train.tsv 64 1
cut -f 1 train.tsv | head -n 4 >words
tiles='--quiet --set cpu.variant=amx_bf16 --set model.dtype=bfloat16 --set model.head_dim=32 --set train.steps=2'
dense='--set moe.num_experts=0 --set moe.num_encoder_sparse_layers=0 --set moe.num_decoder_sparse_layers=0'
# train PROGRAM FOLDER RUN-FILE ARGUMENTS...
cat >train <<END
program=\$1 folder=\$2 run=\$3
shift 3
\$program train \$run --run-dir \$folder --set task.words.train=train.tsv $tiles "\$@" </dev/null
END
# shellcheck disable=SC2086
{
    sh train "$program" moe "$top/bench/tiny.run" --threads 1 --set cpu.emulate=true >moe.out 2>moe.err || fail "$(cat moe.err)"
    sh train "$program" dense "$top/bench/tiny.run" --threads 1 $dense --set cpu.emulate=true >dense.out 2>dense.err || fail "$(cat dense.err)"
}
"$program" predict moe --threads 1 --set cpu.variant=amx_bf16 --set cpu.emulate=true <words >answers 2>moe.err || fail "$(cat moe.err)"
for run in moe dense; do sed -n "s/^weights sha256 /HASH $run /p" $run.out; done >hashes
[ "$(wc -l <hashes)" -eq 2 ] || fail "no two hashes of trainings here"
[ "$failures" -eq 0 ] || finish

# ---- the guest ----

# install FILE...: at their own paths, with the libraries that they load.
install() {
    for file in "$@" $(ldd "$@" | grep -o '/[^ :]*' | sort -u); do
        mkdir -p "root${file%/*}" && cp -L "$file" "root$file" || exit 99
    done
}
install "$program" "$tests" "$SWITCHYARD_BACKEND_PATH/switchyard-cpu.so"
mkdir -p root/bin root/proc root/sys root/dev root/tmp
for tool in sh mount mkdir rm cat cmp sed sleep; do ln -sf busybox root/bin/$tool; done
cp "$(command -v busybox)" root/bin/busybox
cp -R "$top/bench/tiny.run" train.tsv words train answers moe root
cat >root/init <<END
#!/bin/sh
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mount -t tmpfs none /tmp
mkdir /dev/shm; mount -t tmpfs none /dev/shm
cd /; export LC_ALL=C TERM=dumb SWITCHYARD_BACKEND_PATH=$SWITCHYARD_BACKEND_PATH
# try NAME COMMAND...
try() {
    name=\$1
    shift
    "\$@" >/tmp/out 2>&1
    echo "RESULT \$name exit \$?"
    cat /tmp/out
}
# hash NAME ARGUMENTS...
hash() {
    run=\$1
    shift
    try "train \$run" sh train $program /tmp/run tiny.run "\$@"
    sed -n "s/^weights sha256 /HASH \$run /p" /tmp/out
    rm -rf /tmp/run
}
try backends $program backends
try speeds $program backends --verbose
try doctor $program doctor
hash moe --threads 1
hash moe --threads 2
hash dense --threads 2 $dense --set cpu.variant=auto --set cpu.bfloat16=amx_bf16
$program predict moe --threads 2 --set cpu.variant=amx_bf16 <words >/tmp/answers
try answers cmp answers /tmp/answers
for some in tile/the_instruction_has_these_bits 'tile_system/*' 'gemm_amx/*' 'attention_amx/*' panels/few_and_many_rows; do
    try "\$some" $tests --jobs 1 --filter "\$some"
done
echo GUEST ENDS
exec sleep 10000 # or the kernel panics before the console has all
END
chmod +x root/init
(cd root && find . | cpio -o -H newc -R 0:0 2>/dev/null | gzip -1) >cd/initrd
cp "$KERNEL" cd/vmlinuz && cp $isolinux $menu cd || exit 99
# 580: FSRM. Linux 6.1 takes the processor's fast strings, which Bochs does not state in an MSR, for off, and this alone for on;
# then its memmove copies too much.
cat >cd/isolinux.cfg <<END
default linux
label linux
kernel vmlinuz
append initrd=initrd console=ttyS0 clearcpuid=580 mitigations=off maxcpus=1 acpi=off nokaslr lpj=100000 tsc=reliable random.trust_cpu=on panic=-1
END
xorriso -as mkisofs -quiet -o boot.iso -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table cd 2>log || { fail "$(cat log)"; finish; }

# ---- the run ----

cat >bochsrc <<END
display_library: nogui
cpu: model=sapphire_rapids, count=1, ips=20000000
megs: 1024
romimage: file=\$BXSHARE/BIOS-bochs-latest
vgaromimage: file=\$BXSHARE/VGABIOS-lgpl-latest.bin
ata0-master: type=cdrom, path=boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=serial
log: bochs.log
panic: action=fatal
END
BXSHARE=${BXSHARE:-$(dirname "$BOCHS")/../share/bochs}
export BXSHARE
timeout 7200 "$BOCHS" -q -f bochsrc >bochs.out 2>&1 </dev/null &
owner=$!
# Bochs goes on where the guest has stopped.
while kill -0 $owner 2>/dev/null && ! grep -aq 'GUEST ENDS\|Kernel panic' serial 2>/dev/null; do sleep 1; done
kill $owner 2>/dev/null
owner=
[ -s serial ] || { fail "the guest says nothing: $(tail -n 3 bochs.out)"; finish; }
tr -d '\r' <serial >console
grep -q '^GUEST ENDS' console || { fail "the guest ends early: $(tail -n 5 console)"; finish; }
grep -q '^cpu .*amx_bf16' console || fail "the guest has no AMX: $(grep '^cpu ' console)"
failed=$(grep '^RESULT .* exit [^0]\|^\[FAIL\]\|: Assertion' -A 3 console)
[ -z "$failed" ] || fail "in the guest: $failed"
grep -q '^  amx_bf16 .*[1-9]' console || fail "the guest does not measure tiles: $(grep -A 20 '^RESULT speeds' console)"
[ "$(grep -c '^RESULT .* exit 0' console)" -eq 12 ] || fail "not 12 results: $(grep '^RESULT' console)"
[ "$(grep -c 'Synthesis: Tested: [1-9]' console)" -eq 5 ] || fail "not 5 suites with tests: $(grep Synthesis console)"
{ sed -n 1p hashes; cat hashes; } >want
grep '^HASH' console >got
cmp -s want got || fail "weights here: $(cat want); in the guest: $(cat got)"
finish
