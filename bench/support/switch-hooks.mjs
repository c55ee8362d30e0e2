/**
 * Adds a switch to the built acceptor when it is loaded, so that one process can be measured with
 * and without a part: two processes of the same program differ by more than a part costs. What
 * operates the switch is `switch.thread.ts`.
 */

const THREADS = new URL('../../dist/threads/', import.meta.url).href;
const IMPORT = `import { startSwitching } from '${THREADS}switch.thread.js';`;

/** By name: a text of the built code, and what it becomes. */
export const INSERTIONS = {
  start: {
    text: 'const recorder = new DecisionRecorder(',
    replacement: 'startSwitching(control, stats); const recorder = new DecisionRecorder(',
  },
  events: {
    text: '\tsamples() {\n\t\tif (',
    replacement: '\tsamples() {\n\t\tif (globalThis.areEventsOff || ',
  },
};

export async function load(url, context, nextLoad) {
  const loaded = await nextLoad(url, context);
  const isBuilt = url.includes('/dist/') && !url.startsWith(THREADS);
  if (loaded.format !== 'module' || !isBuilt) return loaded;
  let source = String(loaded.source);
  if (source.includes(INSERTIONS.start.text)) source = `${IMPORT}\n${source}`;
  for (const { text, replacement } of Object.values(INSERTIONS)) {
    source = source.replace(text, () => replacement);
  }
  return { ...loaded, source };
}
