#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench: what it prints of a run and of single ops, as text and as JSON, and what it refuses. No number is judged that
# depends on the machine's speed.
. "$(dirname "$0")/_common.sh"
tiny_run=$top/bench/tiny.run

# number NAME: the first value of that member in the JSON document.
number() {
    sed -n "s/.*\"$1\":\(-\{0,1\}[0-9][0-9.e+-]*\)[,}].*/\1/p" "$here/out" | head -n 1
}

# positive NAME...: members that are numbers over 0.
positive() {
    for name; do
        awk -v x="$(number "$name")" 'BEGIN { exit !(x != "" && x > 0) }' ||
            fail "$shown: $name is '$(number "$name")': $(head -c 600 "$here/out")"
    done
}

# one_document: the output is one line in braces that a JSON reader takes, if there is one.
one_document() {
    [ "$(wc -l <"$here/out")" -eq 1 ] || fail "$shown: not one line: $(head -c 300 "$here/out")"
    grep -q '^{"benchmark":.*}$' "$here/out" || fail "$shown: no document: $(head -c 300 "$here/out")"
    ! command -v python3 >/dev/null 2>&1 || python3 -m json.tool <"$here/out" >/dev/null ||
        fail "$shown: not JSON"
}

# ---- a run ----
shown='a run'
exits 0 "$program" bench "$tiny_run" --threads 2 --steps 3 --warmup 1 --profile --json
one_document
positive threads peak_f32_gflops registers_f32_gflops copy_gb_per_second median_seconds min_seconds tokens_per_second product_gflop \
    percent_of_peak planned_bytes peak_process_bytes roofline
[ "$(number steps)" = 3 ] || fail "steps: $(number steps)"
awk -v rate="$(number product_gflops)" -v share="$(number percent_of_peak)" -v peak="$(number peak_f32_gflops)" \
    'BEGIN { x = 100 * rate / peak / share; exit !(x > 0.999 && x < 1.001) }' ||
    fail "percent_of_peak is not of peak_f32_gflops: $(number product_gflops), $(number percent_of_peak), $(number peak_f32_gflops)"
[ "$(number tokens)" = 1280 ] || fail "tokens of 32 rows of 16 and 24: $(number tokens)"
[ "$(number planned_bytes)" -le "$(number peak_process_bytes)" ] || fail "the process is smaller than its plan"
says out '"ops":\[{"name":'
says out '"layers":\[{"name":'
says out '"products":\[{"name":'
says out '"name":"grouped_matmul '
says out '"name":"grouped_matmul","calls":8,'
says out '"name":"decoder/layers_1/self_attention"'
says out '"name":"update"'
# Costs are those of the step, so twice the microbatches of half the rows compute as much.
products=$(number product_gflop)
exits 0 "$program" bench "$tiny_run" --threads 1 --steps 1 --warmup 1 --json --set model.dropout_rate=0 \
    --set moe.num_experts=0 --set train.microbatches=1
one=$(number product_gflop)
exits 0 "$program" bench "$tiny_run" --threads 1 --steps 1 --warmup 1 --json --set model.dropout_rate=0 \
    --set moe.num_experts=0 --set train.microbatches=4
[ "$one" = "$(number product_gflop)" ] || fail "FLOPs depend on microbatches: $one, $(number product_gflop)"
grep -q '"ops"' "$here/out" && fail "tables without --profile"
[ "$one" != "$products" ] || fail "a dense and a sparse model cost the same"

exits 0 "$program" bench "$tiny_run" --steps 1 --warmup 1 --threads 1
says out '^machine$'
says out '^  median_seconds  *[0-9.]*$'
says out '^launch: 1 rank x 1 thread'
exits 0 "$program" bench "$tiny_run" --steps 1 --warmup 1 --comm thread --ranks 2 --threads 1 --set mesh.data=2
says out '^launch: 2 ranks x 1 thread'

# Real batches are shorter than the longest.
shown='data'
data "$here/train.tsv" 200 1
exits 0 "$program" bench "$tiny_run" --data --set task.words.train="$here/train.tsv" --steps 2 --json
[ "$(number tokens)" -lt 1280 ] || fail "tokens of short examples: $(number tokens)"
# Batches of two padded lengths: the arithmetic is that of the steps that were timed, all of them, and so are the rates.
gflop_of_data() { # WARMUP STEPS
    exits 0 "$program" bench "$tiny_run" --data --set task.words.train="$here/train.tsv" --set moe.num_experts=0 --threads 1 \
        --warmup "$1" --steps "$2" --json
    number product_gflop
}
steps="$(gflop_of_data 1 1) $(gflop_of_data 2 1) $(gflop_of_data 3 1) $(gflop_of_data 4 1)"
all=$(gflop_of_data 1 4)
echo "$steps $all" | awk '{ x = ($1 + $2 + $3 + $4) / 4 / $5; exit !(x > 0.999999 && x < 1.000001 && ($1 != $2 || $1 != $3 || $1 != $4)) }' ||
    fail "product_gflop of four steps is $all, of each $steps"
awk -v seconds="$(number mean_seconds)" -v gflop="$(number product_gflop)" -v gflops="$(number product_gflops)" -v tokens="$(number tokens)" \
    -v per_second="$(number tokens_per_second)" \
    'BEGIN { x = gflops * seconds / gflop; y = per_second * seconds / tokens; exit !(x > 0.999 && x < 1.001 && y > 0.999 && y < 1.001) }' ||
    fail "rates of data are not sums over sums: $(cat "$here/out")"
exits 2 "$program" bench "$tiny_run" --data
one_line_error
says err 'task.NAME.train is not set'

# ---- two configurations ----
shown='compare'
exits 0 "$program" bench "$tiny_run" --steps 1 --warmup 1 --threads 1 --pairs 2 --json \
    --compare cpu.variant=portable,model.mlp_activations=gelu,linear,threads=2
one_document
positive ratio ratio_low ratio_high first_median_seconds second_median_seconds second_peak_memory_mib
says out '"name":"pair 2"'
says out '"first":"1 rank x 1 thread '
says out '"second":"1 rank x 2 threads .*(portable)'
exits 0 "$program" bench "$tiny_run" --steps 1 --warmup 1 --threads 1 --pairs 1 --json --compare cpu.threads=2
says out '"first":"1 rank x 1 thread .*"second":"1 rank x 2 threads '
for wrong in nonsense threads=0 cpu.variant=avx3 colour=red cpu.nothing=1; do
    exits 2 "$program" bench "$tiny_run" --compare $wrong
    one_line_error
done

# ---- decoding ----
# Two batch sizes, greedy and with beams: all positions of the longest output, whatever ends before.
shown='decode'
exits 0 "$program" bench decode "$tiny_run" --set decode.batch_size=8 --steps 2 --warmup 1 --threads 2 --profile --json
one_document
positive words_per_second tokens_per_second median_seconds encode_ms step_ms planned_bytes
[ "$(number words)" = 8 ] || fail "words: $(number words)"
# of two batches the medians are means, so the parts are the whole
awk -v whole="$(number median_seconds)" -v encode="$(number encode_ms)" -v step="$(number step_ms)" -v positions="$(number output_length)" \
    'BEGIN { x = (encode + step * positions) / whole / 1000; exit !(x > 0.9999 && x < 1.0001) }' ||
    fail "encode_ms and step_ms are not parts of median_seconds: $(head -c 900 "$here/out")"
length=$(number output_length)
says out '"name":"argmax","calls":'"$length"','
exits 0 "$program" bench decode "$tiny_run" --set decode.batch_size=4 --beams 3 --steps 1 --warmup 1 --profile --json
[ "$(number beams)" = 3 ] || fail "beams: $(number beams)"
says out '"name":"top_k","calls":'"$length"','
exits 2 "$program" bench decode
one_line_error
exits 2 "$program" bench decode "$tiny_run" --data
one_line_error
exits 2 "$program" bench "$tiny_run" --beams 2
says err 'beams belongs to decode'
exits 2 "$program" bench "$tiny_run" "$tiny_run"
one_line_error

# ---- single ops ----
for case in gemm:33x40x24 attention:2x9x17x2 optimizer:3x64x96 moe:2x64x16x32; do
    shown=$case
    exits 0 "$program" bench "${case%:*}" --shape "${case#*:}" --seconds 0.001 --threads 2 --json
    one_document
    positive peak_f32_gflops
    case $case in
    gemm*)
        says out '"name":"tn 33x40x24"'
        positive median_us min_us peak_gflops percent_of_peak median_percent min_percent
        ;;
    attention*)
        says out '"name":"cross 2x9x17x2 backward"'
        positive mean_us min_us gflops peak_gflops percent_of_peak
        ;;
    optimizer*)
        says out '"name":"schedule_free"'
        positive ns_per_element least_gb percent_of_stream
        ;;
    moe*)
        says out '"name":"256 experts"'
        positive ms to_dense_flops to_bound update_ms whole_to_dense dispatch_256_to_8
        ;;
    esac
done

# A product's percent is of the peak measured beside it, as far as the printed numbers tell: each is rounded to a tenth.
exits 0 "$program" bench gemm --shape 64x256x256 --seconds 0.01 --threads 2
awk '$2 == "64x256x256" {
        low = 100 * ($5 - 0.05) / ($6 + 0.05) - 0.051
        if ($6 > 0.05 && $7 >= low && $7 <= 100 * ($5 + 0.05) / ($6 - 0.05) + 0.051) right++
    }
    END { exit right != 3 }' "$here/out" || fail "percent_of_peak is not of peak_gflops: $(grep 64x256x256 "$here/out")"

# With places, too, what a row says is of one product, not of all that a run has.
exits 0 "$program" bench gemm --shape 64x256x256 --places 31 --seconds 0.01 --threads 2
awk '$2 == "64x256x256" && $4 < 8 * $3 { right++ } END { exit right != 3 }' "$here/out" ||
    fail "min_us is not of one product: $(grep 64x256x256 "$here/out")"

exits 0 "$program" bench gemm --shape 33x40x24 --places 3 --seconds 0.001 --threads 2 --json
one_document
says out '"name":"tn 33x40x24"'
positive median_us min_us percent_of_peak

for case in gemm:33x40x24 attention:2x9x17x2 moe:2x64x16x32; do
    shown="$case in bfloat16"
    exits 0 "$program" bench "${case%:*}" --shape "${case#*:}" --seconds 0.001 --threads 2 --dtype bfloat16 --json
    one_document
    says out '"dtype":"bf16"'
done
# The same by the run file's key, and where the time of a layer goes.
shown='ops of layers'
exits 0 "$program" bench moe --shape 2x64x16x32 --seconds 0.001 --threads 2 --set model.dtype=bfloat16 --profile --json
one_document
says out '"dtype":"bf16"'
says out '"name":"grouped_matmul_tn","calls":3,'
exits 2 "$program" bench gemm --profile
one_line_error
shown='a run in bfloat16'
exits 0 "$program" bench "$tiny_run" --steps 1 --warmup 1 --threads 1 --set model.dtype=bfloat16 --json
says out '"dtype":"bf16"'
positive product_gflop percent_of_peak

# ---- a device: what leaves cost, which one rank pays for there, too; no share of what the processor can do ----
# of_processor ARGUMENTS...: whether its output has such a number.
of_processor() {
    exits 0 "$program" bench "$@" --threads 1 --json
    grep -q 'peak_f32\|peak_gflops\|percent_of_peak\|roofline\|median_percent\|to_bound' "$here/out"
}
price='"reproducible":{"on_seconds":[0-9.e-]*,"off_seconds":[0-9.e-]*,"price_percent":'
if [ -n "${SY_TEST_PLUGINS-}" ]; then
    shown='a device'
    SWITCHYARD_BACKEND_PATH=${SWITCHYARD_BACKEND_PATH:-$abs_top_builddir/.libs}:$SY_TEST_PLUGINS
    export SWITCHYARD_BACKEND_PATH
    for backend in far cpu; do
        of_processor "$tiny_run" --backend $backend --steps 1 --warmup 1 --profile
        echo "$backend $? $(grep -c "$price" "$here/out")"
    done >"$here/told"
    # without leaves there is nothing to compare with
    of_processor "$tiny_run" --backend far --steps 1 --warmup 1 --set reproducible.enabled=false
    echo "off $? $(grep -c "$price" "$here/out")" >>"$here/told"
    for kind in gemm:8x8x8 attention:2x9x17x2 moe:2x64x16x32; do
        of_processor ${kind%:*} --shape ${kind#*:} --seconds 0.001 --backend far
        echo "${kind%:*} $?"
    done >>"$here/told"
    printf '%s\n' 'far 1 1' 'cpu 0 0' 'off 1 0' 'gemm 1' 'attention 1' 'moe 1' | diff - "$here/told" >"$here/differs" ||
        fail "of backends it says: $(cat "$here/differs")"
    exits 0 "$program" plan "$tiny_run" --backend far
    says out '^the longest step: no time, what this backend can do is not measured'
else
    echo 'skipped: a device (this build has no shared libraries)'
fi

# ---- what it refuses ----
exits 2 "$program" bench gemm --shape 4x5
says err 'expected MxKxN'
exits 2 "$program" bench gemm --shape 4x5x6x7
exits 2 "$program" bench gemm --shape 4x0x6
exits 2 "$program" bench gemm --steps 4
says err 'steps belongs to the benchmark of a run file and decode$'
exits 2 "$program" bench gemm --profile
says err 'profile belongs to the benchmark of a run file, decode and moe$'
exits 2 "$program" bench "$tiny_run" --shape 4x5x6
says err 'shape belongs to gemm'
exits 2 "$program" bench "$tiny_run" --pairs 3
exits 2 "$program" bench "$tiny_run" --compare threads=1 --pairs 65
says err 'pairs=65: at most 64$'
exits 2 "$program" bench moe --places 3
says err 'places belongs to gemm'
exits 2 "$program" bench "$tiny_run" --profile --compare threads=1
exits 2 "$program" bench gemm --dtype int8
exits 2 "$program" bench optimizer --dtype bfloat16
exits 2 "$program" bench gemm --backend null
exits 2 "$program" bench nothing.run
one_line_error
[ -z "$(cat "$here/out")" ] || fail "output beside an error: $(cat "$here/out")"
finish
