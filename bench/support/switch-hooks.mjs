/**
 * Adds switches to the built code of weir when it is loaded, so that one process can be measured
 * with and without a part: two processes of the same program differ by more than a part costs.
 *
 * The environment variable SWITCHED names the parts. A part is on for SLOT_MS and then off for as
 * long, by the clock of the system: on in even slots. So the benchmark knows it without a message.
 */

const { SLOT_MS, SWITCHED = '' } = process.env;
const CHECK_MS = 10;

/** A statement that is run again and again with `isOn`. */
const repeat = (statement) => `
setInterval(() => {
  const isOn = Math.floor(Date.now() / ${SLOT_MS}) % 2 === 0;
  ${statement}
}, ${CHECK_MS}).unref();
`;

const HOUR = 'Atomics.store(control.words, CONTROL.analyticsHour, this.#hour);';
const SAMPLES = '\tsamples() {\n\t\tif (';

/** By part: a text of the built code, what it becomes, and what is added to its file. */
export const SWITCHES = {
  analytics: {
    text: HOUR,
    replacement: repeat(HOUR.replace('this.#hour', 'isOn ? this.#hour : 0')),
    atEnd: '',
  },
  events: {
    text: SAMPLES,
    replacement: `${SAMPLES}!isEventSwitchOn || `,
    atEnd: `let isEventSwitchOn = true;${repeat('isEventSwitchOn = isOn;')}`,
  },
};

export async function load(url, context, nextLoad) {
  const loaded = await nextLoad(url, context);
  if (loaded.format !== 'module' || !url.includes('/dist/')) return loaded;
  let source = String(loaded.source);
  for (const part of SWITCHED.split(',')) {
    const { text, replacement, atEnd } = SWITCHES[part];
    if (source.includes(text)) source = `${source.replace(text, () => replacement)}\n${atEnd}`;
  }
  return { ...loaded, source };
}
