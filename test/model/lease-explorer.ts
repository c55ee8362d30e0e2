/**
 * Explores every order of events of a lease scenario, breadth first, so that a printed schedule is a
 * shortest one. Each world is explored once; worlds are told apart by a hash of 48 bits of a text
 * that is the same for worlds of which no later event shows a difference: see `lease-state.ts`.
 *
 * In each world the guarantees are checked, and once more after the last reports of all machines,
 * as if no message that is under way arrived. So a message that is delivered at any later time, and
 * one that is lost, need no events of their own.
 */

import { createHash } from 'node:crypto';
import { deserialize, serialize } from 'node:v8';
import { copyWorld, WorldNames } from './lease-state.ts';
import { type LeaseScenario, LeaseWorld, type World, type WorldEvent } from './lease-world.ts';

export interface LeaseExploration {
  states: number;
  transitions: number;
  /** States without a next event. */
  endings: number;
  /** Whether every state was explored. */
  isComplete: boolean;
}

/** Members that cannot join try again for ever. */
const MAX_WALK = 300;
/** After so many steps of a walk the guarantees are checked for the last reports, too. */
const WALK_CHECK = 4;

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
  const names = new WorldNames(scenario);
  const seen = new Set<number>();
  const result = { states: 0, transitions: 0, endings: 0, isComplete: true };
  // Bytes take a sixth of the memory of objects, and none of the heap.
  let frontier: { world: Buffer; step: Step | undefined }[] = [
    { world: serialize(model.first()), step: undefined },
  ];
  while (frontier.length > 0) {
    const next: typeof frontier = [];
    for (const { world: bytes, step } of frontier) {
      const world: World = deserialize(bytes);
      const events = model.events(world);
      if (events.length === 0) result.endings++;
      for (const { name, apply } of events) {
        const reached = { name, parent: step };
        const after = copyWorld(world);
        result.transitions++;
        const isNew = run(reached, () => {
          apply(after);
          model.tidy(after);
          const hash = hashOf(names.of(after));
          if (seen.has(hash)) return false;
          seen.add(hash);
          model.check(after);
          model.checkEnd(copyWorld(after));
          return true;
        });
        if (!isNew) continue;
        result.states++;
        next.push({ world: serialize(after), step: reached });
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
  let steps = 0;
  for (let walk = 0; walk < walks; walk++) {
    steps += follow(scenario, WALK_CHECK, (events) => {
      return events.length > 0 ? events[below(events.length)] : undefined;
    });
  }
  return steps;
}

/** Follows one schedule, to its end or to an event that the scenario does not have there. */
export function followSchedule(scenario: LeaseScenario, schedule: readonly string[]): void {
  const names = [...schedule];
  follow(scenario, 1, (events) => {
    const name = names.shift();
    return events.find((event) => event.name === name);
  });
}

/**
 * @param checkEvery after so many steps the guarantees are checked for the last reports, too
 * @param choose the next event, or undefined for the end
 */
function follow(
  scenario: LeaseScenario,
  checkEvery: number,
  choose: (events: readonly WorldEvent[]) => WorldEvent | undefined,
): number {
  const model = new LeaseWorld(scenario);
  const world = model.first();
  let step: Step | undefined;
  let steps = 0;
  for (; steps < MAX_WALK; steps++) {
    const event = choose(model.events(world));
    if (event === undefined) break;
    step = { name: event.name, parent: step };
    run(step, () => {
      event.apply(world);
      model.tidy(world);
      model.check(world);
      if (steps % checkEvery === 0) model.checkEnd(copyWorld(world));
    });
  }
  run(step, () => model.checkEnd(world));
  return steps;
}

function run<T>(step: Step | undefined, action: () => T): T {
  try {
    return action();
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

/** 48 bits of the hash of a text. */
function hashOf(text: string): number {
  return createHash('md5').update(text).digest().readUIntBE(0, 6);
}
