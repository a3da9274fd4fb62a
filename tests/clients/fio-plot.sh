# fio-plot, a reader of fio's JSON that is not ours, draws what `bimetal lab fio --json` prints.
. "$(dirname "$0")/lib.sh"
need python3

plot=${FIO_PLOT:-$(command -v fio-plot || true)}
if [[ -z $plot ]]; then
    { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet fio-plot==1.1.21; } >"$work/pip.log" 2>&1 ||
        { tail -n 3 "$work/pip.log"; echo "fio-plot cannot be installed"; exit 77; }
    plot=$work/venv/bin/fio-plot
fi

mkdir "$work/runs"
for depth in 1 4 16; do
    cat >"$work/job.fio" <<JOB
[global]
ioengine=io_uring
filename=$work/data
size=32m
bs=4k
rw=randread
runtime=1
time_based
group_reporting
[reads]
iodepth=$depth
numjobs=1
JOB
    "$BIMETAL" lab fio "$work/job.fio" --json >"$work/runs/depth-$depth.json"
done

# drawn NAME OPTION...: the picture is one, and no blank one
drawn() {
    local name=$1
    shift
    "$plot" --input-directory "$work/runs" --title "$name" --rw randread --numjobs 1 \
        --output-filename "$work/$name.png" "$@" >"$work/plot.log" 2>&1 || { cat "$work/plot.log"; exit 1; }
    [[ $(head -c 8 "$work/$name.png" | od -An -tx1 | tr -d ' ') == 89504e470d0a1a0a ]]
    (($(stat -c %s "$work/$name.png") > 10000)) || { echo "$name is blank"; exit 1; }
}
drawn depths --bargraph2d-qd --iodepth 1 4 16
drawn processors --bargraph2d-qd --iodepth 1 4 16 --show-cpu
drawn times --histogram --iodepth 4
echo "fio-plot drew IOPS and latency by depth, the processor's load and a histogram"
