/** The clock of the server, whose times all views show: that of the browser may be wrong. */

let aheadMs = 0;

/** @param at Unix time in ms, in a message of the server that has just come */
export function setServerTime(at: number): void {
  aheadMs = at - Date.now();
}

/** Unix time in ms, a whole number; before the first message, by the clock of the browser. */
export function serverNow(): number {
  return Math.round(Date.now() + aheadMs);
}
