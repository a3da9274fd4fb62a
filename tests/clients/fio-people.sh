# Job files and command lines as people write them are run, and do what they do with a real fio. All of them take minutes:
# FIO_PEOPLE_SECONDS says how long there is.
. "$(dirname "$0")/lib.sh"
need fio python3
python3 "$(dirname "$0")/../fio/people.py" "$BIMETAL" --seconds "${FIO_PEOPLE_SECONDS:-30}"
