/** Quantities in the text of pages. */

const KIB = 1_024;
const MIB = 1_048_576;
const DAY_MS = 86_400_000;

/** For example `10 000`. */
export function grouped(number: number): string {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ' ');
}

/** For example `64 KiB`. */
export function bytesText(bytes: number): string {
  return bytes < MIB ? `${bytes / KIB} KiB` : `${bytes / MIB} MiB`;
}

/** For example `36 525 days`. */
export function daysText(ms: number): string {
  return `${grouped(ms / DAY_MS)} days`;
}

/** For example `5 s`. */
export function secondsText(ms: number): string {
  return `${ms / 1_000} s`;
}
