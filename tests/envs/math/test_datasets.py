"""Data sets: gold rules on published rows, sets frozen by hash, loud errors, DAPO's cleaning by hand."""

# Rows as published: GSM8K (MIT), MATH (MIT), OlympiadBench (MIT); the others are made up in their layout.
GSM8K = {"question": "A robe takes 2 bolts ...", "answer": "It takes 2/2=<<2/2=1>>1 bolt\n#### 1,003"}
TEXTBOOK = {
    "problem": "Find the limit.",
    "solution": r"We guess \boxed{1}. Later, \[ \boxed{ \frac{1}{2} } \]",
    "idx": 7,
}
DAPO_BARE = "What is $1+1$?"
DAPO_WRAPPED = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    f"$Answer (without quotes) where $Answer is the answer to the problem.\n\n{DAPO_BARE}\n\nRemember to put your "
    'answer on its own line after "Answer:".'
)


def olympiad(*answers):
    return {"id": 1, "question": "?", "final_answer": list(answers)}


def dapo(text):
    return {"prompt": [{"role": "user", "content": text}], "reward_model": {"ground_truth": "2"}}
