#!/bin/sh
# Plays an agent CLI: answers --version, keeps the prompt, prints a stream.
case "$1" in
--version) echo "stand-in 1.2.3"; exit 0 ;;
auth | login) exit 1 ;;
esac
if [ -z "$STANDIN_DEAF" ]; then cat >"$STANDIN_PROMPT"; fi
cat "$STANDIN_STREAM"
exit "${STANDIN_STATUS:-0}"
