import type { Lesson } from '../learn/lesson.ts';
import { readOwnLessons } from '../learn/own-lessons.ts';
import { text } from './options.ts';

/** Lessons of a teacher, beside those of Fairlead. */
export const LESSONS_OPTION = text('FOLDER', 'also your own lessons, files of a folder (docs/lessons.md)');

/** Reads the lessons of a folder; null: none. Throws FairleadError. */
export const ownLessonsIn = (folder: string | null): Lesson[] =>
  folder === null ? [] : readOwnLessons(folder);
