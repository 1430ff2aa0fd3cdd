"""Yes/no questions to vision-language models about an image and its views: POPE, voting, LLaVA, endpoints, VCD."""
