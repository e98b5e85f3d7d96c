"""Students: models that learn from public inputs, of which an ensemble answered a few.

All of it is post-processing of charged answers: no record of a partition is read here, and nothing is charged.
"""

from trainer_adapter.students.label_spreading import spread_labels
from trainer_adapter.students.picture_views import turned_and_shifted
from trainer_adapter.students.question_choice import choose_questions, rows_of
from trainer_adapter.students.student_training import Lessons, learn_student

__all__ = ["Lessons", "choose_questions", "learn_student", "rows_of", "spread_labels", "turned_and_shifted"]
