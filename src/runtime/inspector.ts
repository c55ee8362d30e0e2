/**
 * Keeps SIGUSR1 from opening Node's inspector, by which every user of the machine could run code
 * with the rights of weir. `dispatch.ts` imports this file before all others.
 *
 * Until this file is loaded, Node handles the signal. An inspector that Node has opened by then is
 * closed, unless the flags or NODE_OPTIONS ask for one.
 */

import { close, url } from 'node:inspector';

const options = [...process.execArgv, process.env.NODE_OPTIONS].join(' ');
const isRequested = /--(inspect|debug)(-brk|-wait)?(=|\s|$)/.test(options);

/** Node opens the inspector some time after the signal, so a start calls this twice. */
export function closeInspector(): void {
  if (!isRequested && url() !== undefined) close();
}

process.on('SIGUSR1', () => {});
closeInspector();
