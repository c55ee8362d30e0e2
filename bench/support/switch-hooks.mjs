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
    text: 'this.recorder = new DecisionRecorder(',
    replacement: 'startSwitching(control, stats); this.recorder = new DecisionRecorder(',
  },
  events: {
    text: 'return this.#events?.samples() === true;',
    replacement: 'return !globalThis.areEventsOff && this.#events?.samples() === true;',
  },
  recent: {
    text: 'const recent = this.#recent;',
    replacement: 'const recent = globalThis.isRecentOff ? void 0 : this.#recent;',
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
