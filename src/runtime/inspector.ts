/**
 * Keeps SIGUSR1 from opening Node's inspector, by which every user of the machine could run code
 * with the rights of weir. `cli.ts` imports this file before all others.
 *
 * Node handles the signal itself until this file is loaded. An inspector that it has opened by then
 * is closed, unless the flags or NODE_OPTIONS ask for one.
 */

import { close, url } from 'node:inspector';

const options = [...process.execArgv, process.env.NODE_OPTIONS].join(' ');
const isRequested = /--(inspect|debug)(-brk|-wait)?(=|\s|$)/.test(options);

/** Node opens the inspector some time after the signal, so this is called more than once. */
export function closeInspector(): void {
  if (!isRequested && url() !== undefined) close();
}

process.on('SIGUSR1', () => {});
closeInspector();
