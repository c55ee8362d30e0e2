# The terminal of a reader: runs the blocks of a page as they are named on standard input. The
# variables and the directory that a block sets stay, as in the shell of a reader.
#
# page-terminal.sh <directory of the blocks>
#
# run N, start N, stop N: N.sh is the block. Its output goes to N.out, and the commands that failed
# to N.failed. Prints "N <exit code>" when it has ended, or been started.
blocks=$1
# Each block is a process group, which Ctrl-C interrupts as a terminal does.
set -m
pids=()
ip link set lo up || exit 1
# Only the messages of the shell about its jobs.
exec 2>"$blocks/jobs"
echo "ready 0"
while read -r action n; do
  case $action in
    run)
      trap 'echo "$BASH_COMMAND: exit code $?" >>"$blocks/$n.failed"' ERR
      . "$blocks/$n.sh" >"$blocks/$n.out" 2>&1 </dev/null
      code=$?
      trap - ERR
      echo "$n $code"
      ;;
    start)
      (. "$blocks/$n.sh"; code=$?; echo "$code" >"$blocks/$n.ended"; exit "$code") \
        >"$blocks/$n.out" 2>&1 </dev/null &
      pids[n]=$!
      echo "$n 0"
      ;;
    stop)
      kill -INT -- "-${pids[n]}"
      wait "${pids[n]}"
      echo "$n $?"
      ;;
  esac
done
