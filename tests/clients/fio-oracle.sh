# `lab fio` asks for what a real fio asks for: the jobs in tests/fio/jobs, and some that are drawn at random.
. "$(dirname "$0")/lib.sh"
need fio nbdkit python3
compare=$(dirname "$0")/../fio/compare.py

python3 "$compare" "$BIMETAL"
# Other seeds each day: FIO_SEED repeats one.
python3 "$compare" "$BIMETAL" --seconds "${FIO_SECONDS:-20}" ${FIO_SEED:+"$FIO_SEED"}
