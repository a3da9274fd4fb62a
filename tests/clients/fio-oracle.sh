# `lab fio` asks for what a real fio asks for: the jobs in tests/fio/jobs, and some that are drawn at random.
. "$(dirname "$0")/lib.sh"
need fio nbdkit python3
compare=$(dirname "$0")/../fio/compare.py

python3 "$compare" "$BIMETAL"
# Always the same ones: FIO_SEED begins elsewhere, for FIO_SECONDS.
if [[ -n ${FIO_SEED:-} ]]; then
    python3 "$compare" "$BIMETAL" --seconds "${FIO_SECONDS:-20}" "$FIO_SEED"
else
    python3 "$compare" "$BIMETAL" --seeds 3 40
fi
