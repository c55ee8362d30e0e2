/**
 * Explores every order of events of a lease scenario, breadth first, so that a printed schedule is a
 * shortest one. Each world is explored once; worlds are told apart by a hash of 53 bits.
 */

import { type LeaseScenario, LeaseWorld, type World } from './lease-world.ts';

export interface LeaseExploration {
  states: number;
  endings: number;
  /** Over all states, the most tokens that were denied although they might have fitted. */
  unproven: number;
  /** Whether every state was explored. */
  isComplete: boolean;
}

/** Members that cannot join try again for ever. */
const MAX_WALK = 300;

interface Step {
  name: string;
  parent: Step | undefined;
}

/** @throws the error of the first state that breaks a guarantee, with its schedule */
export function exploreLeases(
  scenario: LeaseScenario,
  maxStates = Number.POSITIVE_INFINITY,
): LeaseExploration {
  const model = new LeaseWorld(scenario);
  const seen = new Set<number>();
  const result = { states: 0, endings: 0, unproven: 0, isComplete: true };
  let frontier: { text: string; step: Step | undefined }[] = [
    { text: JSON.stringify(model.first()), step: undefined },
  ];
  while (frontier.length > 0) {
    const next: typeof frontier = [];
    for (const { text, step } of frontier) {
      const events = model.events(JSON.parse(text) as World);
      for (const { name, apply } of events) {
        const world = JSON.parse(text) as World;
        const reached = { name, parent: step };
        run(reached, () => {
          apply(world);
          model.check(world);
        });
        const reachedText = canonicalText(world);
        const hash = hashOf(reachedText);
        if (seen.has(hash)) continue;
        seen.add(hash);
        result.states++;
        result.unproven = Math.max(result.unproven, world.unproven);
        next.push({ text: reachedText, step: reached });
      }
      if (events.length === 0) {
        result.endings++;
        run(step, () => model.checkEnd(JSON.parse(text) as World));
      }
      if (seen.size >= maxStates) return { ...result, isComplete: false };
    }
    frontier = next;
  }
  return result;
}

/** Follows random schedules to their end. @returns the number of steps */
export function walkLeases(
  scenario: LeaseScenario,
  walks: number,
  below: (below: number) => number,
): number {
  const model = new LeaseWorld(scenario);
  const start = JSON.stringify(model.first());
  let steps = 0;
  for (let walk = 0; walk < walks; walk++) {
    const world = JSON.parse(start) as World;
    let step: Step | undefined;
    for (let length = 0; length < MAX_WALK; length++) {
      const events = model.events(world);
      if (events.length === 0) break;
      const { name, apply } = events[below(events.length)];
      step = { name, parent: step };
      steps++;
      run(step, () => {
        apply(world);
        model.check(world);
      });
    }
    run(step, () => model.checkEnd(world));
  }
  return steps;
}

function run(step: Step | undefined, action: () => void): void {
  try {
    action();
  } catch (error) {
    if (error instanceof Error) error.message += `\n\nin the schedule:\n${scheduleOf(step)}`;
    throw error;
  }
}

function scheduleOf(step: Step | undefined): string {
  const names = [];
  for (let at = step; at !== undefined; at = at.parent) names.push(at.name);
  return names.reverse().join('\n');
}

/** Worlds that differ only in the order of messages, or in what has no effect, are the same. */
function canonicalText(world: World): string {
  const byText = <T>(items: T[]): T[] => {
    if (items.length < 2) return items;
    return items
      .map((item): [string, T] => [JSON.stringify(item), item])
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([, item]) => item);
  };
  world.requests = byText(world.requests);
  world.answers = byText(world.answers.filter(({ machine }) => world.machines[machine].isAlive));
  world.news = byText(world.news.filter(({ machine }) => world.machines[machine].isAlive));
  return JSON.stringify(world);
}

/** The cyrb53 hash of a text. */
function hashOf(text: string): number {
  let a = 0xdeadbeef;
  let b = 0x41c6ce57;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    a = Math.imul(a ^ code, 2_654_435_761);
    b = Math.imul(b ^ code, 1_597_334_677);
  }
  a = Math.imul(a ^ (a >>> 16), 2_246_822_507) ^ Math.imul(b ^ (b >>> 13), 3_266_489_909);
  b = Math.imul(b ^ (b >>> 16), 2_246_822_507) ^ Math.imul(a ^ (a >>> 13), 3_266_489_909);
  return 4_294_967_296 * (2_097_151 & b) + (a >>> 0);
}
